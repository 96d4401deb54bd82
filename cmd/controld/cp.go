package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// cpFlags are those of cp.
type cpFlags struct {
	recursive, quiet, parents, sync, checksum bool
}

func (a *app) cpCommand() *cobra.Command {
	var f cpFlags
	cmd := a.clientCommand(&cobra.Command{
		Use:   "cp [flags] SRC DST",
		Short: "Copy a file into the sandbox or out of it",
		Long: `Copy a file into the sandbox or out of it. :PATH is the sandbox's side, - is
standard input or output. The file appears under its name whole or not at all,
and the number of bytes is always verified.`,
		Example: "  controld cp model.bin :model.bin\n  controld cp :result.tar -",
		Args:    args(cobra.ExactArgs(2)),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		src, dst := args[0], args[1]
		if f.recursive {
			return usagef("cp: -r is not supported yet")
		}
		switch up, down := strings.HasPrefix(dst, ":"), strings.HasPrefix(src, ":"); {
		case up == down:
			return usagef("cp: one side, and one alone, must be :PATH in the sandbox")
		case up:
			return a.upload(cmd.Context(), sb, src, remotePath(dst), f)
		default:
			return a.download(cmd.Context(), sb, remotePath(src), dst, f)
		}
	})
	fl := cmd.Flags()
	fl.BoolVarP(&f.recursive, "recursive", "r", false, "copy directories (not yet)")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress bar")
	fl.BoolVar(&f.parents, "parents", false, "make missing parent directories")
	fl.BoolVar(&f.sync, "sync", false, "let the file survive a crash of its host")
	fl.BoolVar(&f.checksum, "checksum", false, "compare the SHA-256 of both sides")
	return cmd
}

// progress counts bytes on a bar, on a terminal alone.
type progress struct {
	bars *mpb.Progress
	bar  *mpb.Bar
}

func (a *app) progress(name string, total int64, f cpFlags) *progress {
	w, ok := a.stderr.(*os.File)
	if f.quiet || a.client.json || !ok || !term.IsTerminal(int(w.Fd())) {
		return nil
	}
	bars := mpb.New(mpb.WithOutput(w), mpb.WithWidth(48))
	bar := bars.AddBar(total,
		mpb.PrependDecorators(decor.Name(name+" "), decor.CountersKibiByte("% .1f / % .1f")),
		mpb.AppendDecorators(decor.AverageSpeed(decor.SizeB1024(0), "% .1f"), decor.Name(" "), decor.AverageETA(decor.ET_STYLE_GO)))
	return &progress{bars, bar}
}

// watch shows how far a copy is until done.
func (p *progress) watch(ctx context.Context, sent func() int64) (stop func(whole bool)) {
	if p == nil {
		return func(bool) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick(ctx, func() { p.bar.SetCurrent(sent()) })
	}()
	return func(whole bool) {
		cancel()
		<-ended
		if whole {
			p.bar.SetTotal(sent(), true)
		} else {
			p.bar.Abort(false)
		}
		p.bars.Wait()
	}
}

func (a *app) upload(ctx context.Context, sb *adapter.Sandbox, src, dst string, f cpFlags) error {
	in, info, err := a.openSource(src)
	if err != nil {
		return err
	}
	if in != os.Stdin {
		defer in.Close()
	}
	opts := sandbox.WriteOptions{Sync: f.sync, Digest: f.checksum}
	if dst, err = place(ctx, sb, src, dst, info, &opts); err != nil {
		return err
	}
	if f.parents {
		if dir := path.Dir(dst); dir != "." && dir != "/" {
			if err := sb.Mkdir(ctx, dir, sandbox.MkdirOptions{Recursive: true}); err != nil {
				return err
			}
		}
	}
	var r io.Reader = in
	if in == os.Stdin && a.stdin != os.Stdin {
		r = a.stdin
	}
	p := a.progress(filepath.Base(src), opts.Size.Value, f)
	stop := p.watch(ctx, func() int64 { return position(in) })
	_, err = sb.WriteFileStream(ctx, dst, r, opts)
	stop(err == nil)
	return err
}

// position is how far a file has been read, 0 where it cannot tell.
func position(f *os.File) int64 {
	n, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	return n
}

// openSource opens a local file; info is nil for standard input.
func (a *app) openSource(src string) (*os.File, fs.FileInfo, error) {
	if src == "-" {
		return os.Stdin, nil, nil
	}
	in, err := os.Open(src)
	if err != nil {
		return nil, nil, localError("open", src, err)
	}
	info, err := in.Stat()
	if err == nil && info.IsDir() {
		err = &sandbox.Error{Kind: sandbox.KindIsDirectory, Op: "cp", Path: src}
	}
	if err != nil {
		in.Close()
		return nil, nil, localError("stat", src, err)
	}
	return in, info, nil
}

func localError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return sandbox.AsError(op, path, err)
}

// place decides the name of an upload: a directory takes the file under its
// own name, a new file its mode.
func place(ctx context.Context, sb *adapter.Sandbox, src, dst string, info fs.FileInfo, opts *sandbox.WriteOptions) (string, error) {
	if info != nil && info.Mode().IsRegular() {
		opts.Size = sandbox.Some(info.Size())
	}
	if dst == "" {
		dst = "."
	}
	st, err := sb.Stat(ctx, dst, sandbox.StatOptions{})
	kind := sandbox.KindOf(err)
	if err == nil && st.Type == sandbox.TypeDirectory || strings.HasSuffix(dst, "/") && kind == sandbox.KindNotFound {
		if info == nil {
			return "", &sandbox.Error{Kind: sandbox.KindIsDirectory, Op: "cp", Path: dst, Message: "standard input needs the name of a file"}
		}
		dst = strings.TrimSuffix(dst, "/") + "/" + filepath.Base(src)
		_, err = sb.Stat(ctx, dst, sandbox.StatOptions{})
		kind = sandbox.KindOf(err)
	}
	if kind == sandbox.KindNotFound && info != nil {
		opts.Mode = sandbox.Some(uint32(info.Mode().Perm()))
	}
	if err != nil && kind != sandbox.KindNotFound {
		return "", err
	}
	return dst, nil
}

func (a *app) download(ctx context.Context, sb *adapter.Sandbox, src, dst string, f cpFlags) error {
	s, err := sb.ReadFileStream(ctx, src, sandbox.ReadOptions{Digest: f.checksum})
	if err != nil {
		return err
	}
	defer s.Close()
	total, _ := s.Length()
	p := a.progress(path.Base(src), total, f)
	stop := p.watch(ctx, s.Sent)
	if dst == "-" {
		_, err = io.Copy(a.stdout, s)
	} else {
		err = receive(s, src, dst, f)
	}
	stop(err == nil)
	return err
}

// receive writes a stream to a local file that appears whole or not at all.
func receive(s *sandbox.ReadStream, src, dst string, f cpFlags) error {
	if info, err := os.Stat(dst); err == nil && info.IsDir() || strings.HasSuffix(dst, "/") {
		dst = filepath.Join(dst, path.Base(src))
	}
	dir := filepath.Dir(dst)
	if f.parents {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return localError("mkdir", dir, err)
		}
	}
	if info, err := os.Stat(dst); err == nil && !info.Mode().IsRegular() {
		return receiveSpecial(s, dst)
	}
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(dst)+"-*")
	if err != nil {
		return localError("create", dst, err)
	}
	defer os.Remove(tmp.Name())
	_, err = io.Copy(tmp, s)
	if err == nil && f.sync {
		err = localError("fsync", dst, tmp.Sync())
	}
	if err == nil {
		err = localError("chmod", dst, tmp.Chmod(modeFor(dst)))
	}
	err = errors.Join(err, localError("close", dst, tmp.Close()))
	if err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), dst); err != nil {
		return localError("rename", dst, err)
	}
	if f.sync {
		return syncDir(dir)
	}
	return nil
}

// receiveSpecial writes to what cannot be replaced, such as /dev/null.
func receiveSpecial(s *sandbox.ReadStream, dst string) error {
	out, err := os.OpenFile(dst, os.O_WRONLY, 0)
	if err != nil {
		return localError("open", dst, err)
	}
	_, err = io.Copy(out, s)
	return errors.Join(err, localError("close", dst, out.Close()))
}

// modeFor keeps the mode of a file that is replaced.
func modeFor(dst string) fs.FileMode {
	if info, err := os.Stat(dst); err == nil {
		return info.Mode().Perm()
	}
	return 0o644
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return localError("open", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return localError("fsync", dir, fmt.Errorf("directory: %w", err))
	}
	return nil
}
