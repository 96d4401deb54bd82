package agent

import (
	"context"
	"io"

	"github.com/controld/controld/dataport"
)

// Relay joins a stream, such as the standard input and output of an exec, to
// an agent's address until either side ends.
func Relay(ctx context.Context, url string, in io.Reader, out io.Writer) error {
	e, err := dataport.ParseEndpoint(url)
	if err != nil {
		return err
	}
	conn, err := dataport.Dialer{}.Dial(ctx, e)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	go func() {
		io.Copy(conn, in)
		dataport.CloseWrite(conn)
	}()
	_, err = io.Copy(out, conn)
	return err
}
