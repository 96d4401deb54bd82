package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/controld/controld/integration/load/worker"
)

// bulk is the group of the large transfers to and from tmpfs.
func (b *bench) bulk() group {
	g := group{name: "bulk", before: b.settle, trials: []trial{
		{"controld down", b.move(worker.Controld, "down", false)},
		{"controld up", b.move(worker.Controld, "up", false)},
		{"bare down", b.move(bare, "down", false)},
		{"bare up", b.move(bare, "up", false)},
		{"bare " + worker.DownCopy, b.move(bare, worker.DownCopy, false)},
		{"bare " + worker.DownPipeline, b.move(bare, worker.DownPipeline, false)},
		{"bare " + worker.DownMapped, b.move(bare, worker.DownMapped, false)},
		{"iperf3", b.fromServer(iperf, func(host, port string) (string, []string) {
			return "", []string{"iperf3", "-c", host, "-p", port, "-n", fmt.Sprint(b.size), "-J"}
		})},
		{"cp", b.copied(b.target(), "cp", "--sparse=never", "--reflink=never", b.source, b.target())},
		{"nginx + curl", b.fromServer(nginx, func(host, port string) (string, []string) {
			return "", []string{"curl", "-sS", "-f", "-o", b.target(), "http://" + host + ":" + port + "/source"}
		})},
		{"sftp get", b.sftp("get")},
		{"sftp put", b.sftp("put")},
		{"scp get", b.scp(false)},
		{"scp put", b.scp(true)},
		{"gRPC-Go down", b.move(grpcGo, "down", false)},
		{"gRPC-Go up", b.move(grpcGo, "up", false)},
		{"docker cp out", b.dockerOut},
		{"docker cp in", b.dockerIn},
	}}
	for _, dir := range []string{"down", "up"} {
		g.rows = append(g.rows, b.bulkRows(dir)...)
	}
	g.rows = append(g.rows, b.times("down", "nginx + curl", "nginx + curl", 1.6), b.times("down", "docker cp", "docker cp out", 5),
		b.times("up", "docker cp", "docker cp in", 2.5))
	g.rows = append(g.rows, b.limits(g.rows)...)
	return g
}

// limits are rows that tell what the bare pair, which knows no protocol, makes
// of the rows there are, and what other bare ways to a new file make of it.
func (b *bench) limits(rows []row) (limits []row) {
	for _, r := range rows {
		pair, other := strings.Replace(r.needs[0], worker.Controld, bare, 1), r.needs[1]
		if !r.atMost && other != pair {
			limits = append(limits, told(b.rate("limit: bare "+r.name, pair, other, r.must)))
		}
	}
	for _, way := range []string{worker.DownCopy, worker.DownPipeline, worker.DownMapped} {
		limits = append(limits, told(b.rate("limit: bare "+way+", vs sendfile and splice", "bare "+way, "bare down", 1)))
	}
	return limits
}

// bulkRows are those that there are in both directions.
func (b *bench) bulkRows(dir string) []row {
	get := map[string]string{"down": "get", "up": "put"}[dir]
	ours, bareCase := "controld "+dir, "bare "+dir
	return []row{
		b.times(dir, "iperf3, one stream", "iperf3", 0.60),
		b.times(dir, "cp", "cp", 0.85),
		b.times(dir, "a bare pair of sendfile and splice", bareCase, 0.95),
		{name: dir + ": CPU of both sides vs the bare pair", size: b.sizeText(), must: 1.10, atMost: true, unit: "x",
			needs: []string{ours, bareCase}, figure: cpu(ours, bareCase)},
		b.times(dir, "sftp", "sftp "+get, 5),
		b.times(dir, "scp aes128-gcm", "scp "+get, 3),
		b.times(dir, "gRPC-Go, 1 MiB messages", "gRPC-Go "+dir, 2.5),
	}
}

func (b *bench) times(dir, other, name string, must float64) row {
	return b.rate(dir+" vs "+other, "controld "+dir, name, must)
}

// rate returns the row of how many times as fast one case is as another.
func (b *bench) rate(name, ours, other string, must float64) row {
	return row{name: name, size: b.sizeText(), must: must, unit: "x", needs: []string{ours, other}, figure: speed(ours, other)}
}

// recv is the group of the client that does nothing but recv.
func (b *bench) recv() group {
	return group{name: "recv", before: b.settle, trials: []trial{
		{"controld to recv", b.move(worker.Controld, "recv", false)},
		{"bare to recv", b.move(bare, "recv", false)},
	}, rows: []row{b.rate("to a client that recv()s into 1 MiB vs a bare sendfile sender", "controld to recv", "bare to recv", 0.95)}}
}

// durable is the group of uploads that survive a crash of the host.
func (b *bench) durable() group {
	const script = `cp --sparse=never --reflink=never "$1" "$2" && sync -d "$2"`
	disk := func(run func(context.Context) (measure, error)) func(context.Context) (measure, error) {
		return func(ctx context.Context) (measure, error) {
			if fs := fileSystem(b.temp); fs != "ext4" {
				return measure{}, fmt.Errorf("%w: ext4 (%s is %s, see -disk)", errMissing, b.temp, fs)
			}
			return run(ctx)
		}
	}
	return group{name: "durable", before: b.settle, trials: []trial{
		{"controld up, durable", disk(b.move(worker.Controld, "up", true))},
		{"cp && sync -d", disk(b.copied(b.onDisk(), "/bin/sh", "-c", script, "sh", b.source, b.onDisk()))},
		{"bare up, to the disk's cache", disk(b.move(bare, "up", true))},
	}, rows: []row{
		b.rate("durable upload to ext4 vs cp && sync -d", "controld up, durable", "cp && sync -d", 0.95),
		told(b.rate("limit: bare up to ext4, not synced, vs cp && sync -d", "bare up, to the disk's cache", "cp && sync -d", 0.95)),
	}}
}
