//! What the webhook answers, and the pages that are generated from the code: golden pods and pages. No test starts a
//! program.

#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

// How an AdmissionReview becomes a patch: the golden pairs of tests/golden.
mod admit;
// Every setting: its annotation, its default, and what is wrong with a bad value.
mod annotations;
// docs/cli.md lists every command with its flags.
mod cli;
// docs/codes.md lists every code.
mod codes;
// docs/json.md lists every member of each JSON.
mod json;
// What the manifests of real Envoys show.
mod manifests;
// The figures in README.md and docs, which are those of docs/measured.
mod measured;
// The claims and versions of docs/dev/claims.md name tests that exist, and the pages for users have them.
mod security;
