"""Results of other harnesses: vla-eval, lerobot-eval, tables."""

from besttake.recordings.outcomes import IngestError, Outcome, Source
from besttake.reporting.terminal.ingest import render_text
from besttake.verbs.ingest import IngestResult, ingest, read

__all__ = ["IngestError", "IngestResult", "Outcome", "Source", "ingest", "read", "render_text"]
