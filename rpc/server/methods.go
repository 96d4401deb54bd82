package server

import (
	"strings"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// do calls the backend.
func (cl *call) do() (rpc.Result, error) {
	switch p := cl.r.Params.(type) {
	case *rpc.ReadParams:
		if cl.r.Method == rpc.MethodReadFileStream {
			return cl.mintRead(p)
		}
		return cl.readFile(p)
	case *rpc.WriteParams:
		if cl.r.Method == rpc.MethodWriteFileStream {
			return cl.mintWrite(p)
		}
		return cl.writeFile(p)
	case *rpc.ExistsParams:
		return cl.exists(p)
	case *rpc.StatParams:
		return cl.stat(p)
	case *rpc.ReadDirParams:
		return cl.readDir(p)
	case *rpc.MkdirParams:
		return cl.pathCall(p.Path, func(b sandbox.Backend) error { return b.Mkdir(cl.ctx, p.Path, p.Options) })
	case *rpc.RmParams:
		return cl.pathCall(p.Path, func(b sandbox.Backend) error { return b.Rm(cl.ctx, p.Path, p.Options) })
	case *rpc.ExecParams:
		return cl.exec(p)
	case *rpc.TransferParams:
		if cl.r.Method == rpc.MethodTransferAbort {
			return cl.abortTransfer(p.ID)
		}
		return verdict(cl.awaited.Wait(cl.ctx))
	case *rpc.CommitParams:
		return cl.commitTransfer(p)
	case *rpc.Empty, *rpc.SandboxParams, *rpc.SandboxRemoveParams, *rpc.SandboxExtendParams:
		return cl.sandboxes()
	}
	return nil, &sandbox.Error{Kind: sandbox.KindUnknownMethod}
}

func (cl *call) backend() sandbox.Backend { return cl.c.peer.session.Backend }

// checkPath refuses what no system call can take.
func checkPath(path string) error {
	switch {
	case path == "":
		return &sandbox.Error{Kind: sandbox.KindInvalidParams, Message: "path must not be empty"}
	case strings.IndexByte(path, 0) >= 0:
		return &sandbox.Error{Kind: sandbox.KindInvalidParams, Message: "path must not hold NUL"}
	}
	return nil
}

// pathCall is a call on a path without a result of its own.
func (cl *call) pathCall(path string, f func(sandbox.Backend) error) (rpc.Result, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	if err := f(cl.backend()); err != nil {
		return nil, err
	}
	return &rpc.Empty{}, nil
}

func (cl *call) exists(p *rpc.ExistsParams) (rpc.Result, error) {
	if checkPath(p.Path) != nil {
		return &rpc.ExistsResult{}, nil
	}
	yes, err := cl.backend().Exists(cl.ctx, p.Path, p.Options)
	if err != nil {
		return nil, err
	}
	return &rpc.ExistsResult{Exists: yes}, nil
}

func (cl *call) stat(p *rpc.StatParams) (rpc.Result, error) {
	if err := checkPath(p.Path); err != nil {
		return nil, err
	}
	st, err := cl.backend().Stat(cl.ctx, p.Path, p.Options)
	if err != nil {
		return nil, err
	}
	return &rpc.StatResult{Stat: st}, nil
}

func (cl *call) readDir(p *rpc.ReadDirParams) (rpc.Result, error) {
	if err := checkPath(p.Path); err != nil {
		return nil, err
	}
	list, err := cl.backend().ReadDir(cl.ctx, p.Path, p.Options)
	if err != nil {
		return nil, err
	}
	if err := rpc.CheckNames(p.Path, list.Names); err != nil {
		return nil, err
	}
	size := int64(0)
	for _, name := range list.Names {
		size += int64(len(name)) + 3
	}
	if most := cl.c.maxReply(); size > most {
		return nil, &sandbox.Error{Kind: sandbox.KindTooLarge, Limit: sandbox.Some(most)}
	}
	if err := cl.take(size); err != nil {
		return nil, err
	}
	return &rpc.ReadDirResult{Listing: list}, nil
}

func (cl *call) writeFile(p *rpc.WriteParams) (rpc.Result, error) {
	if err := checkPath(p.Path); err != nil {
		return nil, err
	}
	if most := cl.c.peer.limits.MaxBufferedBytes; int64(len(p.Content)) > most {
		return nil, &sandbox.Error{Kind: sandbox.KindTooLarge, Limit: sandbox.Some(most)}
	}
	info, err := cl.backend().WriteFile(cl.ctx, p.Path, p.Content, p.Options)
	if err != nil {
		return nil, err
	}
	p.Content = nil
	cl.giveBack(0)
	return &rpc.WriteResult{Info: info}, nil
}
