-- What all controllers of a database count together: what has changed, controllers that were
-- started, and up to which change withdrawn files are forgotten.
CREATE TABLE numbers (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
);
INSERT INTO numbers (name, value) VALUES ('change', 0), ('run', 0), ('forgotten', 0);

ALTER TABLE files ADD COLUMN change INTEGER NOT NULL DEFAULT 0;
CREATE INDEX files_by_change ON files (change);
ALTER TABLE plans ADD COLUMN change INTEGER NOT NULL DEFAULT 0;
-- Whether it ends the plans of its object before it: 1, or 0.
ALTER TABLE plans ADD COLUMN ends INTEGER NOT NULL DEFAULT 0;
UPDATE plans SET ends = 1 WHERE body LIKE '%"parts":[],"spread":[]}';
CREATE INDEX plans_by_change ON plans (change);

CREATE TABLE withdrawn (
    change INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (change, name)
);

-- Which controller a router reports to; 0: none that is known.
ALTER TABLE routers ADD COLUMN run INTEGER NOT NULL DEFAULT 0;
ALTER TABLE routers ADD COLUMN change INTEGER NOT NULL DEFAULT 0;

-- A controller that runs counts its beat up.
CREATE TABLE controllers (
    run INTEGER PRIMARY KEY,
    url TEXT NOT NULL,
    began_ms INTEGER NOT NULL,
    beat INTEGER NOT NULL
);
