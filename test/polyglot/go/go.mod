module polyglot

go 1.19
