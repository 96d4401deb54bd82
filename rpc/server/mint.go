package server

import (
	"context"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

func (cl *call) owner(path string) transfer.Owner {
	s := cl.c.peer.session
	o := transfer.Owner{Tenant: s.Tenant, Sandbox: s.Sandbox, Who: s.Who, Source: cl.c.guest.Source.String(),
		Path: path, Keyed: cl.errand != nil}
	if !o.Keyed {
		o.Group = cl.c.minted()
	}
	return o
}

// ticket is what the client gets of a mint.
func (cl *call) ticket(t *transfer.Transfer, token string) rpc.Transfer {
	return rpc.Transfer{
		ID:        t.ID,
		Token:     token,
		Endpoints: cl.c.peer.endpoints(),
		ExpiresIn: cl.c.s.cfg.Transfers.TokenTTL(),
	}
}

// handOut is ticket, or leaves that to the calls which wait for this work.
func (cl *call) handOut(t *transfer.Transfer, token string) rpc.Transfer {
	if cl.errand != nil {
		cl.errand.minted = t
		return rpc.Transfer{}
	}
	return cl.ticket(t, token)
}

// mintRead opens a file and mints the transfer that sends it.
func (cl *call) mintRead(p *rpc.ReadParams) (rpc.Result, error) {
	if err := checkPath(p.Path); err != nil {
		return nil, err
	}
	t, token, err := cl.c.s.cfg.Transfers.MintRead(cl.ctx, cl.owner(p.Path), func(ctx context.Context) (sandbox.Source, error) {
		return cl.backend().OpenRead(ctx, p.Path, p.Options)
	})
	if err != nil {
		return nil, err
	}
	r := &rpc.StreamResult{Transfer: cl.handOut(t, token), ETag: t.Source().ETag()}
	r.Size.Value, r.Size.Known = t.Source().Size()
	r.Length.Value, r.Length.Known = t.Source().Length()
	return r, nil
}

// mintOpened mints the transfer of a buffered read that is too long to come
// with its answer.
func (cl *call) mintOpened(path string, src *opened, length int64) (rpc.Result, error) {
	t, token, err := cl.c.s.cfg.Transfers.MintRead(cl.ctx, cl.owner(path), func(ctx context.Context) (sandbox.Source, error) {
		if !src.detach() {
			return nil, sandbox.Cancelled(cl.ctx, cl.r.Method, "")
		}
		src.detach = context.AfterFunc(ctx, src.cancel)
		return src, nil
	})
	if err != nil {
		src.Close()
		return nil, err
	}
	ticket := cl.ticket(t, token)
	r := &rpc.ReadResult{Transfer: &ticket, Length: length}
	r.File.Size, _ = src.Size()
	r.File.ETag = src.ETag()
	return r, nil
}

// mintContent mints the transfer of a file that did not say how long it is
// and turned out too long to come with its answer.
func (cl *call) mintContent(path string, file sandbox.FileContent) (rpc.Result, error) {
	t, token, err := cl.c.s.cfg.Transfers.MintRead(cl.ctx, cl.owner(path), func(context.Context) (sandbox.Source, error) {
		return sandbox.ContentSource(file), nil
	})
	if err != nil {
		return nil, err
	}
	ticket := cl.ticket(t, token)
	r := &rpc.ReadResult{Transfer: &ticket, Length: int64(len(file.Data))}
	r.File.Size, r.File.ETag = file.Size, file.ETag
	return r, nil
}

// mintWrite opens a new version of a file and mints the transfer that fills
// it.
func (cl *call) mintWrite(p *rpc.WriteParams) (rpc.Result, error) {
	if err := checkPath(p.Path); err != nil {
		return nil, err
	}
	opts := transfer.WriteOptions{Digest: p.Options.Digest, Durable: p.Options.Sync, Size: p.Options.Size}
	t, token, err := cl.c.s.cfg.Transfers.MintWrite(cl.ctx, cl.owner(p.Path), opts, func(ctx context.Context) (sandbox.Sink, error) {
		return cl.backend().OpenWrite(ctx, p.Path, p.Options)
	})
	if err != nil {
		return nil, err
	}
	return &rpc.StreamResult{Transfer: cl.handOut(t, token)}, nil
}

func (cl *call) find(id string) (*transfer.Transfer, error) {
	s := cl.c.peer.session
	return cl.c.s.cfg.Transfers.Find(s.Tenant, s.Sandbox, id)
}

func (cl *call) commitTransfer(p *rpc.CommitParams) (rpc.Result, error) {
	t, err := cl.find(p.ID)
	if err != nil {
		return nil, err
	}
	return verdict(t.Commit(cl.ctx, p.Commit))
}

func verdict(out transfer.Outcome, err error) (rpc.Result, error) {
	if err != nil {
		return nil, err
	}
	return &rpc.VerdictResult{Bytes: out.Bytes, ETag: out.ETag, Verdict: out.Verdict}, nil
}

func (cl *call) abortTransfer(id string) (rpc.Result, error) {
	t, err := cl.find(id)
	if err != nil {
		return nil, err
	}
	if err := t.Abort(cl.ctx); err != nil {
		return nil, err
	}
	return &rpc.Empty{}, nil
}
