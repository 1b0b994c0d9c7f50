# What only Gatepost can do.
own_hooks() { :; }
changes() { :; }
