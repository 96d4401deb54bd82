package peer

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
)

// serveHTTP serves every file of the machine; it listens on loopback alone.
func serveHTTP(l net.Listener) error {
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, r.URL.Path) }))
}

// Get reads a file into buf over a connection that is kept and returns how
// long it is.
func Get(ctx context.Context, addr, path string, buf []byte) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	n, err := io.ReadFull(resp.Body, buf)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body) // so that the connection is kept
	}
	return n, err
}
