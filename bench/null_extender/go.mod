module null-extender

go 1.22
