package rpc

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// checkText compares the decoder of texts with encoding/json on a JSON string
// with that inside, at every kind of place in a block.
func checkText(t *testing.T, before, behind int, inside []byte) {
	t.Helper()
	token := []byte(`"` + strings.Repeat("x", before) + string(inside) + strings.Repeat("y", behind) + `"`)
	line := append(bytes.Clone(token), `,"size":51200}}`...)
	var want string
	ok := utf8.Valid(token) && json.Unmarshal(token, &want) == nil
	scanned := decoder{data: line}
	if s := scanned.scanString(); ok && (s.text() != want || scanned.pos != len(token)) {
		// A lone surrogate is a fault here and a replacement there.
		if scanned.broken != "a lone surrogate" {
			t.Fatalf("%q: scanned %q, want %q", token, s.text(), want)
		}
		ok = false
	}
	if !ok && scanned.broken == "" && scanned.pos == len(token) {
		t.Fatalf("took %q", token)
	}
	d := decoder{data: line}
	got := d.text()
	if d.broken != scanned.broken || d.pos != scanned.pos {
		t.Fatalf("%q: %q at %d, want %q at %d", token, d.broken, d.pos, scanned.broken, scanned.pos)
	}
	if ok && string(got) != want {
		t.Fatalf("%q: got %q, want %q", token, got, want)
	}
}

// checkEscapes compares the encoder of texts with a naive one, into pieces of
// that size.
func checkEscapes(t *testing.T, piece int, s []byte) {
	t.Helper()
	plain := naive(s)
	want := plain[1 : len(plain)-1]
	if n, ok := measure(s, len(want)); !ok || n != len(want) {
		t.Fatalf("%q: measured %d, want %d", s, n, len(want))
	}
	if n, ok := measure(s, len(want)-1); ok && len(want) > 0 {
		t.Fatalf("%q: %d are no more than %d", s, n, len(want)-1)
	}
	var got []byte
	for i := 0; i < len(s); {
		out, n := appendEscapedPiece(append(make([]byte, 0, piece+16), "ab"...), s[i:])
		if n == 0 || len(out) < 2 || string(out[:2]) != "ab" {
			t.Fatalf("%q: took %d and made %q", s[i:], n, out)
		}
		i, got = i+n, append(got, out[2:]...)
	}
	if string(got) != want {
		t.Fatalf("%q: got %q, want %q", s, got, want)
	}
}

// TestBlocks holds both to encoding/json, with every byte, every escape and
// every pair of finds at every place of a block.
func TestBlocks(t *testing.T) {
	for at := range 2*blockSize + 2 {
		for c := range 256 {
			s := append([]byte(strings.Repeat("x", at)), byte(c))
			checkText(t, at, 200, []byte{byte(c)})
			checkText(t, at, 200, []byte{'\\', byte(c)})
			if utf8.Valid(s) {
				checkEscapes(t, 1000, append(s, strings.Repeat("y", 200)...))
			}
		}
		for _, inside := range []string{`\\\\`, `\\\"`, `\"\\`, `\\"`, `\u0041\n`, `\n\u00e9`, `\ud83d\ude00\\`, `\ud83d\\`, `é\n`, `\né"`, "\\\\\n", `\\u0041`} {
			checkText(t, at, 200, []byte(inside))
			checkText(t, at, 0, []byte(inside))
		}
	}
}

// TestBlocksMixed does so with random mixtures.
func TestBlocksMixed(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	raw := []string{"plain", "\"", "\\", "\n", "\t\t\t", "\x00", "世", "é", "\x7f", "x", strings.Repeat("long ", 20)}
	coded := []string{"plain", `\"`, `\\`, `\n`, `\t\t\t`, `\u0000`, "世", "é", "\x7f", "x", `\/`, `\u00e9`, `\ud83d\ude00`, strings.Repeat("long ", 20)}
	mix := func(of []string) (b []byte) {
		of = of[:1+rng.IntN(len(of))]
		for size := rng.IntN(1 << (2 + rng.IntN(10))); len(b) < size; {
			b = append(b, of[rng.IntN(len(of))]...)
		}
		return b
	}
	for range 3000 {
		checkEscapes(t, rng.IntN(2000), mix(raw))
		checkText(t, rng.IntN(100), rng.IntN(200), mix(coded))
	}
}

// FuzzText holds the decoder and the encoder of texts to encoding/json.
func FuzzText(f *testing.F) {
	f.Add(uint8(60), uint8(200), []byte(`\n\\\"\u0041世`))
	f.Add(uint8(0), uint8(0), []byte("\\\\\\"))
	f.Add(uint8(3), uint8(130), []byte("a\"b\x00\xff"))
	f.Fuzz(func(t *testing.T, before, behind uint8, s []byte) {
		checkText(t, int(before), int(behind), s)
		if utf8.Valid(s) {
			checkEscapes(t, int(before)*8, []byte(strings.Repeat("x", int(before))+string(s)+strings.Repeat("y", int(behind))))
		}
	})
}
