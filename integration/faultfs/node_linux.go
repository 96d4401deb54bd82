package faultfs

import (
	"context"
	"path"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node is a file or directory. What it does not do itself the directory below
// does.
type node struct {
	*fs.LoopbackNode
	f *FS
}

// WrapChild implements [fs.NodeWrapChilder].
func (n *node) WrapChild(_ context.Context, below fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{below.(*fs.LoopbackNode), n.f}
}

// meet returns what happens to a call on the file itself, meetIn to one on a
// name in the directory.
func (n *node) meet(call Call) Fault { return n.f.meet(call, n.Path(nil)) }

func (n *node) meetIn(call Call, name string) Fault {
	return n.f.meet(call, path.Join(n.Path(nil), name))
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if hit := n.meetIn(Lookup, name); hit.Errno != 0 {
		return nil, hit.Errno
	}
	return n.LoopbackNode.Lookup(ctx, name, out)
}

func (n *node) Getattr(ctx context.Context, h fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	hit := n.meet(Getattr)
	if hit.Errno != 0 {
		return hit.Errno
	}
	no := n.LoopbackNode.Getattr(ctx, h, out)
	out.Size = uint64(int64(out.Size) + hit.Grown)
	return no
}

// Statx leaves everything to Getattr.
func (n *node) Statx(context.Context, fs.FileHandle, uint32, uint32, *fuse.StatxOut) syscall.Errno {
	return syscall.ENOSYS
}

// Access lets the kernel's other calls tell who may do what.
func (n *node) Access(context.Context, uint32) syscall.Errno { return n.meet(Access).Errno }

func (n *node) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if hit := n.meet(Setattr); hit.Errno != 0 {
		return hit.Errno
	}
	return n.LoopbackNode.Setattr(ctx, h, in, out)
}

// Open has nothing cached: each read of the program's is one of the file's.
func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if hit := n.meet(Open); hit.Errno != 0 {
		return nil, 0, hit.Errno
	}
	h, _, no := n.LoopbackNode.Open(ctx, flags)
	return h, fuse.FOPEN_DIRECT_IO, no
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if hit := n.meetIn(Create, name); hit.Errno != 0 {
		return nil, nil, 0, hit.Errno
	}
	in, h, _, no := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return in, h, fuse.FOPEN_DIRECT_IO, no
}

// Tmpfile is what such file systems do not have: files without a name.
func (n *node) Tmpfile(context.Context, uint32, uint32, *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, syscall.EOPNOTSUPP
}

func (n *node) Read(ctx context.Context, h fs.FileHandle, to []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	hit := n.meet(Read)
	if hit.Errno != 0 {
		return nil, hit.Errno
	}
	to = to[:hit.most(len(to))]
	hit.pace(len(to))
	return h.(fs.FileReader).Read(ctx, to, at)
}

func (n *node) Write(ctx context.Context, h fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	hit := n.meet(Write)
	switch {
	case hit.Errno != 0:
		return 0, hit.Errno
	case hit.Drop:
		return uint32(len(data)), 0
	}
	data = data[:hit.most(len(data))]
	hit.pace(len(data))
	return h.(fs.FileWriter).Write(ctx, data, at)
}

// Writev is Write for what comes in pieces.
func (n *node) Writev(ctx context.Context, h fs.FileHandle, pieces [][]byte, at int64) (uint32, syscall.Errno) {
	var data []byte
	for _, p := range pieces {
		data = append(data, p...)
	}
	return n.Write(ctx, h, data, at)
}

// CopyFileRange leaves everything to Read and Write.
func (n *node) CopyFileRange(context.Context, fs.FileHandle, uint64, *fs.Inode, fs.FileHandle, uint64, uint64, uint64) (uint32, syscall.Errno) {
	return 0, syscall.ENOSYS
}

func (n *node) Allocate(ctx context.Context, h fs.FileHandle, at, size uint64, mode uint32) syscall.Errno {
	if hit := n.meet(Allocate); hit.Errno != 0 {
		return hit.Errno
	}
	return h.(fs.FileAllocater).Allocate(ctx, at, size, mode)
}

func (n *node) Flush(ctx context.Context, h fs.FileHandle) syscall.Errno {
	if hit := n.meet(Flush); hit.Errno != 0 {
		return hit.Errno
	}
	return h.(fs.FileFlusher).Flush(ctx)
}

func (n *node) Fsync(ctx context.Context, h fs.FileHandle, flags uint32) syscall.Errno {
	hit := n.meet(Fsync)
	if hit.Errno != 0 || hit.Drop {
		return hit.Errno
	}
	if file, is := h.(fs.FileFsyncer); is {
		return file.Fsync(ctx, flags)
	}
	return 0
}

func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if hit := n.meet(Opendir); hit.Errno != 0 {
		return nil, 0, hit.Errno
	}
	h, more, no := n.LoopbackNode.OpendirHandle(ctx, flags)
	if no != 0 {
		return nil, 0, no
	}
	return &list{h, n}, more, 0
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if hit := n.meetIn(Mkdir, name); hit.Errno != 0 {
		return nil, hit.Errno
	}
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if hit := n.meetIn(Link, name); hit.Errno != 0 {
		return nil, hit.Errno
	}
	return n.LoopbackNode.Link(ctx, target, name, out)
}

func (n *node) Rename(ctx context.Context, name string, to fs.InodeEmbedder, as string, flags uint32) syscall.Errno {
	if hit := to.EmbeddedInode().Operations().(*node).meetIn(Rename, as); hit.Errno != 0 {
		return hit.Errno
	}
	return n.LoopbackNode.Rename(ctx, name, to, as, flags)
}

func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	if hit := n.meetIn(Unlink, name); hit.Errno != 0 {
		return hit.Errno
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	if hit := n.meetIn(Rmdir, name); hit.Errno != 0 {
		return hit.Errno
	}
	return n.LoopbackNode.Rmdir(ctx, name)
}

// list is a directory that is being listed.
type list struct {
	below fs.FileHandle
	n     *node
}

func (l *list) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	if hit := l.n.meet(Readdir); hit.Errno != 0 {
		return nil, hit.Errno
	}
	return l.below.(fs.FileReaddirenter).Readdirent(ctx)
}

func (l *list) Seekdir(ctx context.Context, at uint64) syscall.Errno {
	return l.below.(fs.FileSeekdirer).Seekdir(ctx, at)
}

func (l *list) Fsyncdir(ctx context.Context, flags uint32) syscall.Errno {
	return l.n.Fsync(ctx, nil, flags)
}

func (l *list) Releasedir(ctx context.Context, flags uint32) {
	l.below.(fs.FileReleasedirer).Releasedir(ctx, flags)
}

var _ interface {
	fs.NodeWrapChilder
	fs.NodeLookuper
	fs.NodeGetattrer
	fs.NodeStatxer
	fs.NodeAccesser
	fs.NodeSetattrer
	fs.NodeOpener
	fs.NodeCreater
	fs.NodeTmpfiler
	fs.NodeReader
	fs.NodeWriter
	fs.NodeWritever
	fs.NodeCopyFileRanger
	fs.NodeAllocater
	fs.NodeFlusher
	fs.NodeFsyncer
	fs.NodeOpendirHandler
	fs.NodeMkdirer
	fs.NodeLinker
	fs.NodeRenamer
	fs.NodeUnlinker
	fs.NodeRmdirer
} = (*node)(nil)

var _ interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileFsyncdirer
	fs.FileReleasedirer
} = (*list)(nil)
