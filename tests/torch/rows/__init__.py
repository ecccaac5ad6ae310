"""The rows of the table in docs/pytorch.md, as programs (:mod:`support.rows`)."""
