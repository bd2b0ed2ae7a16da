//! Hostile requests and crowds against the webhook as it ships: what they may take of it.

mod documents;
mod requests;
