"""Results of other harnesses: vla-eval, lerobot-eval, tables."""

from besttake.ingest.build import IngestResult, ingest, read
from besttake.ingest.outcomes import IngestError, Outcome, Source
from besttake.ingest.text import render_text

__all__ = ["IngestError", "IngestResult", "Outcome", "Source", "ingest", "read", "render_text"]
