-- What the holder may register names under, as a JSON list. Tokens that are there could do all.
ALTER TABLE tokens ADD COLUMN prefixes TEXT NOT NULL DEFAULT '["/"]';
