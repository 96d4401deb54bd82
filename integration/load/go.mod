module github.com/controld/controld/integration/load

go 1.26.0

replace github.com/controld/controld => ../..

require (
	github.com/controld/controld v0.0.0
	github.com/sourcegraph/jsonrpc2 v0.2.3
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)
