package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// rpc2Params are those of every call; []byte is base64 in JSON.
type rpc2Params struct {
	Path    string `json:"path"`
	Content []byte `json:"content,omitempty"`
}

// rpc2Stat is what stat answers.
type rpc2Stat struct {
	Size  int64     `json:"size"`
	MTime time.Time `json:"mtime"`
	Mode  uint32    `json:"mode"`
}

// rpc2Content is what read answers.
type rpc2Content struct {
	Content []byte `json:"content"`
}

func serveRPC2(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		jsonrpc2.NewConn(context.Background(), jsonrpc2.NewPlainObjectStream(conn),
			jsonrpc2.AsyncHandler(jsonrpc2.HandlerWithError(answerRPC2)))
	}
}

func answerRPC2(_ context.Context, _ *jsonrpc2.Conn, req *jsonrpc2.Request) (any, error) {
	var p rpc2Params
	if req.Params == nil {
		return nil, fmt.Errorf("no params")
	}
	if err := json.Unmarshal(*req.Params, &p); err != nil {
		return nil, err
	}
	switch req.Method {
	case "stat":
		st, err := os.Stat(p.Path)
		if err != nil {
			return nil, err
		}
		return rpc2Stat{st.Size(), st.ModTime(), uint32(st.Mode())}, nil
	case "read":
		b, err := os.ReadFile(p.Path)
		return rpc2Content{b}, err
	case "write":
		return struct{}{}, os.WriteFile(p.Path, p.Content, 0o644)
	}
	return nil, fmt.Errorf("no method %q", req.Method)
}

// RPC2Client is one connection.
type RPC2Client struct{ conn *jsonrpc2.Conn }

// DialRPC2 connects.
func DialRPC2(addr string) (*RPC2Client, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	none := jsonrpc2.HandlerWithError(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) (any, error) { return nil, nil })
	return &RPC2Client{jsonrpc2.NewConn(context.Background(), jsonrpc2.NewPlainObjectStream(conn), none)}, nil
}

// Stat describes a file.
func (c *RPC2Client) Stat(ctx context.Context, path string) error {
	var st rpc2Stat
	return c.conn.Call(ctx, "stat", rpc2Params{Path: path}, &st)
}

// Read returns a file.
func (c *RPC2Client) Read(ctx context.Context, path string) ([]byte, error) {
	var content rpc2Content
	err := c.conn.Call(ctx, "read", rpc2Params{Path: path}, &content)
	return content.Content, err
}

// Write replaces a file.
func (c *RPC2Client) Write(ctx context.Context, path string, content []byte) error {
	return c.conn.Call(ctx, "write", rpc2Params{Path: path, Content: content}, nil)
}
