package main

import (
	"archive/tar"
	"bufio"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// input is what the demo works on: one file, packed where it was a directory.
type input struct {
	*os.File
	size int64
	temp bool
}

// openInput opens a file or packs a directory; the Go toolchain's source tree
// where path is empty.
func openInput(path string) (*input, error) {
	if path == "" {
		out, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(strings.TrimSpace(string(out)), "src")
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		return &input{File: f, size: info.Size()}, nil
	}
	f, err := os.CreateTemp("", "runtime-demo-*.tar")
	if err != nil {
		return nil, err
	}
	in := &input{File: f, temp: true}
	if in.size, err = pack(f, path); err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

// Close closes the file and removes a packed one.
func (in *input) Close() error {
	err := in.File.Close()
	if in.temp {
		os.Remove(in.Name())
	}
	return err
}

// pack writes dir as a tar that is the same for the same tree: sorted, with
// nothing of owners and times.
func pack(w io.Writer, dir string) (int64, error) {
	counted := &countWriter{w: bufio.NewWriterSize(w, 1<<20)}
	tw := tar.NewWriter(counted)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		return packEntry(tw, path, filepath.ToSlash(name), d)
	})
	if err == nil {
		err = tw.Close()
	}
	if err == nil {
		err = counted.w.Flush()
	}
	return counted.n, err
}

func packEntry(tw *tar.Writer, path, name string, d fs.DirEntry) error {
	if d.IsDir() {
		return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}

type countWriter struct {
	w *bufio.Writer
	n int64
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// repeated yields the input again and again, at least least bytes and always
// whole.
func (in *input) repeated(least int64) (io.Reader, int64) {
	times := max(1, (least+in.size-1)/max(in.size, 1))
	parts := make([]io.Reader, times)
	for i := range parts {
		parts[i] = io.NewSectionReader(in.File, 0, in.size)
	}
	return io.MultiReader(parts...), times * in.size
}
