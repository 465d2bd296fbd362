mod desired;
mod kinds;
mod object;
