package integration

import (
	"encoding/base64"
	"testing"
)

func (r wireReply) str(field string) string { s, _ := r.Result[field].(string); return s }
func (r wireReply) num(field string) int    { n, _ := r.Result[field].(float64); return int(n) }

// content is the bytes of a Content.
func (r wireReply) content(t *testing.T, field string) string {
	t.Helper()
	o, _ := r.Result[field].(obj)
	if s, ok := o["text"].(string); ok && len(o) == 1 {
		return s
	}
	s, ok := o["base64"].(string)
	b, err := base64.StdEncoding.DecodeString(s)
	if !ok || err != nil || len(o) != 1 {
		t.Fatalf("no Content: %v", r.Result[field])
	}
	return string(b)
}

// text is a Content to send.
func text(s string) obj { return obj{"text": s} }

// read reads a whole file.
func (c *wireClient) read(path string) string {
	c.t.Helper()
	return c.ok("read_file", obj{"path": path}).content(c.t, "content")
}

// writeFile writes a file and returns its etag.
func (c *wireClient) writeFile(path, content string) string {
	c.t.Helper()
	return c.ok("write_file", obj{"path": path, "content": text(content)}).str("etag")
}

func (c *wireClient) etag(path string) string {
	c.t.Helper()
	return c.ok("stat", obj{"path": path}).str("etag")
}
