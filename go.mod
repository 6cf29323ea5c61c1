module hansard

go 1.26
