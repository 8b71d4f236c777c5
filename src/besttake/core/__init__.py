"""The science: pure functions on arrays that read like the paper. numpy and scipy only; imports no sibling."""
