//! What every controller of writ shares: lease, conditions, apply, events, health, metrics, webhook TLS.
