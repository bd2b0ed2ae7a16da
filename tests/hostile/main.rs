//! Hostile input and crowds against the release build of the webhook: what the issue tracker calls an
//! outage fails here.

mod crowds;
