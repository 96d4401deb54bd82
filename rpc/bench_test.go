package rpc

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// source is text whose escapes come where no processor expects them: one line
// over and over would be foreseen.
func source(b *testing.B, n int) []byte {
	b.Helper()
	text, err := os.ReadFile("client.go")
	if err != nil {
		b.Fatal(err)
	}
	return bytes.Repeat(text, n/len(text)+1)[:n]
}

func BenchmarkContent(b *testing.B) {
	for name, data := range map[string][]byte{
		"text": source(b, 50<<10), "base64": bytes.Repeat([]byte{0, 255, 3}, 17067), "chinese": []byte(strings.Repeat("世界", 8533)),
	} {
		b.Run("encode/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			piece := make([]byte, 0, 128<<10)
			for b.Loop() {
				m := newMessage()
				encoder{m}.content(data)
				for last := false; !last; {
					piece, last = m.fill(piece[:0])
				}
				m.release()
			}
		})
		m := newMessage()
		encoder{m}.content(data)
		text, _ := m.fill(make([]byte, 0, 1<<20))
		b.Run("decode/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				d := decoder{data: text}
				if got := d.content(); len(got) != len(data) {
					b.Fatal(d.broken, d.bad)
				}
			}
		})
	}
}

func BenchmarkParseLine(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":12,"method":"stat","params":{"path":"src/main.go","follow":true}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, fault := ParseLine(line, 64, true); fault != nil {
			b.Fatal(fault)
		}
	}
}
