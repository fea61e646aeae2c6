# demo  real traffic through every mode, a table at the end (root)
# test  everything, in network namespaces of its own (root)
GO          ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: all build demo test check generate bench clean
all: build check

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/epair ./cmd/epair

demo: build
	bin/epair demo

test:
	$(GO) test -timeout 9m ./...

check:
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

# Needs Debian's clang, llvm and libbpf-dev; what it makes is committed, so building needs none of them.
generate:
	$(GO) generate ./...

bench:
	$(GO) test -run '^$$' -bench . -benchtime 1s ./...

clean:
	rm -rf bin out
