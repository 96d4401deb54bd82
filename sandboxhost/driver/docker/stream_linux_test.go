package docker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func frame(which byte, text string) string {
	header := []byte{which, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(header[4:], uint32(len(text)))
	return string(header) + text
}

// TestStream: frames in any pieces are one stream of bytes; what is no frame, and
// an end within one, is an error.
func TestStream(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct {
		sent, want string
		err        error
		says       string
	}{
		"two frames":         {sent: frame(1, "ab") + frame(1, "c"), want: "abc"},
		"an empty frame":     {sent: frame(1, "") + frame(1, "c"), want: "c"},
		"a long one":         {sent: frame(1, long), want: long},
		"nothing":            {},
		"what it says":       {sent: frame(1, "a") + frame(2, "no such file\n"), want: "a", says: "relay: no such file"},
		"it says much":       {sent: frame(2, long) + frame(1, "a") + frame(2, long), want: "a", says: "relay: " + long[:saidMost]},
		"a cut header":       {sent: frame(1, "a") + "\x01\x00", want: "a", err: io.ErrUnexpectedEOF},
		"a cut frame":        {sent: frame(1, "abc")[:10], want: "ab", err: io.ErrUnexpectedEOF},
		"a cut word":         {sent: frame(2, "abc")[:10], err: io.ErrUnexpectedEOF},
		"another stream":     {sent: frame(1, "a") + frame(3, "b"), want: "a", says: "a frame of stream 3"},
		"no frame":           {sent: "HTTP/1.1 400 Bad Request\r\n", says: "a frame of stream 72"},
		"longer than it can": {sent: "\x01\x00\x00\x00\xff\xff\xff\xffab", want: "ab", err: io.ErrUnexpectedEOF},
	} {
		for pieces, split := range map[string]func(io.Reader) io.Reader{"": func(r io.Reader) io.Reader { return r }, " by bytes": iotest.OneByteReader} {
			t.Run(name+pieces, func(t *testing.T) {
				s := &stream{from: bufio.NewReader(split(strings.NewReader(c.sent)))}
				got, err := io.ReadAll(s)
				if string(got) != c.want {
					t.Errorf("%d bytes %.20q, want %d", len(got), got, len(c.want))
				}
				switch {
				case c.says != "":
					if err == nil || err.Error() != c.says {
						t.Errorf("%.80v", err)
					}
				case !errors.Is(err, c.err):
					t.Errorf("%v, want %v", err, c.err)
				}
			})
		}
	}
}
