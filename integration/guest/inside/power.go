//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox"
)

// names is how many files are written in turns.
const names = 4

// content is a version of a file: its number over and over.
func content(version uint64) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, version), 16<<10+int(version%1000))
}

// write writes one version after another and says so when it is said to be
// durable. How it is written is the first argument.
func write(ctx context.Context, args []string) error {
	if err := mountDisk(); err != nil {
		return err
	}
	one, end, err := writer(ctx, args[0])
	if err != nil {
		return err
	}
	defer end()
	say("ready")
	for version := uint64(1); ; version++ {
		name := "f" + strconv.FormatUint(version%names, 10)
		if err := one(name, content(version)); err != nil {
			return err
		}
		say("durable", name, version)
	}
}

// writer returns one of the ways to write. All but the first are wrong: a test
// that does not see that sees nothing.
func writer(ctx context.Context, how string) (one func(name string, content []byte) error, end func(), err error) {
	switch how {
	case "stream":
		return streamed(ctx)
	case "no-data-fsync":
		return func(name string, c []byte) error { return replace(name, c, false, true) }, func() {}, nil
	case "no-dir-fsync":
		return func(name string, c []byte) error { return replace(name, c, true, false) }, func() {}, nil
	}
	return nil, nil, fmt.Errorf("no way to write %q", how)
}

// streamed writes by streams with sync, through a daemon.
func streamed(ctx context.Context) (func(string, []byte) error, func(), error) {
	sb, end, err := serve(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(name string, c []byte) error {
		_, err := sb.WriteFileStream(ctx, "/data/"+name, bytes.NewReader(c), sandbox.WriteOptions{Sync: true})
		return err
	}, end, nil
}

// replace replaces a file by hand and leaves one of the two syncs out.
func replace(name string, content []byte, data, dir bool) error {
	f, err := os.Create("/data/.new")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && data {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close(), os.Rename("/data/.new", "/data/"+name)); err != nil || !dir {
		return err
	}
	d, err := os.Open("/data")
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// check says which version each file has, and of what is not whole that it is
// torn. Whatever else lies there is said, too.
func check(context.Context, []string) error {
	if err := mountDisk(); err != nil {
		return err
	}
	entries, err := os.ReadDir("/data")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "lost+found" {
			continue
		}
		if err := checkFile(e.Name()); err != nil {
			return err
		}
	}
	return unix.Unmount("/data", 0)
}

func checkFile(name string) error {
	f, err := os.Open(filepath.Join("/data", name))
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if len(got) < 8 {
		say("torn", name, len(got))
		return nil
	}
	version := binary.BigEndian.Uint64(got)
	if version == 0 || version > 1<<30 || !bytes.Equal(got, content(version)) {
		say("torn", name, len(got))
		return nil
	}
	say("holds", name, version)
	return nil
}
