//! Schemas of built-in kinds and of CRDs: validation, defaulting, pruning, how lists merge.
