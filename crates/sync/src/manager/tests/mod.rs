mod plan;
mod status;
