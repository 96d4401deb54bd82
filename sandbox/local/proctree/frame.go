//go:build linux

package proctree

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// What a forest's process and its keeper tell each other are frames of words:
// four bytes of length, and the words with a NUL between two. Descriptors come
// with the first byte. The words of each kind:
//
//	keep REMAINS, drop REMAINS               (JSON)
//	start ID MARK PATH N ARG... ENV...       with the files and the directory
//	ready
//	started ID PID
//	failed ID ERRNO
//	exited ID STATUS
const (
	frameHead = 4
	// maxFrame is more than the kernel takes for one exec.
	maxFrame = 64 << 20
)

var errFrame = errors.New("proctree: a frame that is none")

// makeFrame returns the frame of some words, none of which holds a NUL.
func makeFrame(words ...string) []byte {
	size := len(words) - 1
	for _, w := range words {
		size += len(w)
	}
	frame := binary.NativeEndian.AppendUint32(make([]byte, 0, frameHead+size), uint32(size))
	for i, w := range words {
		if i > 0 {
			frame = append(frame, 0)
		}
		frame = append(frame, w...)
	}
	return frame
}

// bodySize reads how much follows a frame's head.
func bodySize(head []byte) (int, error) {
	size := binary.NativeEndian.Uint32(head)
	if size > maxFrame {
		return 0, errFrame
	}
	return int(size), nil
}

// readFrame reads the words of one frame.
func readFrame(r io.Reader) ([]string, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size, err := bodySize(head[:])
	if err != nil {
		return nil, err
	}
	return readBody(r, size)
}

func readBody(r io.Reader, size int) ([]string, error) {
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return strings.Split(string(body), "\x00"), nil
}
