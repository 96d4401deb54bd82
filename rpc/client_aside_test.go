package rpc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// TestAside: the work beside a mint begins when the request has left, and is
// called off when the mint fails.
func TestAside(t *testing.T) {
	c, f := connect(t, rpc.ConnOptions{})
	const request = `{"jsonrpc":"2.0","id":1,"method":"read_file_stream","params":{"path":"f"}}`
	var cause error
	_, err := c.ReadFileStreamAside(t.Context(), "f", sandbox.ReadOptions{}, func(ctx context.Context) {
		f.want(request)
		f.say(`{"jsonrpc":"2.0","id":1,"error":{"code":-32003,"message":"m","data":{"kind":"not_found"}}}`)
		<-ctx.Done()
		cause = ctx.Err()
	})
	if sandbox.KindOf(err) != sandbox.KindNotFound || !errors.Is(cause, context.Canceled) {
		t.Fatalf("%v, %v", err, cause)
	}
	r, err := c.ReadFileStreamAside(t.Context(), "f", sandbox.ReadOptions{}, func(ctx context.Context) {
		f.take()
		f.say(`{"jsonrpc":"2.0","id":2,"result":{"transfer":{"id":"i","token":"t","endpoints":[],"expires_in_s":30},"etag":""}}`)
		cause = ctx.Err()
	})
	if err != nil || r.Transfer.ID != "i" || cause != nil {
		t.Fatalf("%+v, %v, %v", r, err, cause)
	}
}
