mod many_clusters;
mod plan;
mod scheduler;
