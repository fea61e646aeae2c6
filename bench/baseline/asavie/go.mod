// A module of its own, so that epair doesn't need the library it measures. See main.go for how to build it.
module epair-asavie

go 1.26
