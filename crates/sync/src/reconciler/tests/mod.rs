mod object;
