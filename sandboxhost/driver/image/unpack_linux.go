package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/go-archive/chrootarchive"
	"github.com/moby/go-archive/compression"
)

// unpack unpacks all layers of a source.
func (s *Store) unpack(ctx context.Context, src source, root string) error {
	room := s.maxBytes
	if src.file != "" {
		image, err := ofTar(src.file)
		if err != nil {
			return err
		}
		if image == nil {
			return unpackTar(ctx, src.file, root, &room)
		}
		src.image = func(context.Context) (v1.Image, error) { return image, nil }
	}
	image, err := src.image(ctx)
	if err != nil {
		return err
	}
	if err := suits(image); err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		if err := unpackLayer(ctx, l, root, &room); err != nil {
			return err
		}
	}
	return nil
}

// suits refuses an image whose programs cannot run here.
func suits(image v1.Image) error {
	c, err := image.ConfigFile()
	if err != nil {
		return err
	}
	want := platform()
	if (c.OS != "" && c.OS != want.OS) || (c.Architecture != "" && c.Architecture != want.Architecture) {
		return fmt.Errorf("the image is for %s/%s, not %s/%s", c.OS, c.Architecture, want.OS, want.Architecture)
	}
	return nil
}

// unpackLayer puts a layer over those before it, and wants its content to be
// what the image's configuration says.
func unpackLayer(ctx context.Context, l v1.Layer, root string, room *int64) error {
	want, err := l.DiffID()
	if err != nil {
		return err
	}
	content, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer content.Close()
	sum := sha256.New()
	if err := apply(root, &bounded{ctx: ctx, from: io.TeeReader(content, sum), room: room}); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.Hex {
		return fmt.Errorf("a layer is sha256:%s, not %s", got, want)
	}
	return nil
}

// unpackTar unpacks a file system, compressed or not.
func unpackTar(ctx context.Context, file, root string, room *int64) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := compression.DecompressStream(f)
	if err != nil {
		return err
	}
	defer content.Close()
	return apply(root, &bounded{ctx: ctx, from: content, room: room})
}

// apply unpacks a layer and reads on to its end: what comes behind the archive
// counts for its digest.
func apply(root string, layer io.Reader) error {
	if _, err := chrootarchive.ApplyUncompressedLayer(root, layer, nil); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, layer)
	return err
}

// errTooLarge is said of an image that holds more than the store allows.
var errTooLarge = errors.New("the image holds more than is allowed")

// bounded reads no more than there is room for, until the context ends.
type bounded struct {
	ctx  context.Context
	from io.Reader
	room *int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.from.Read(p)
	if *b.room -= int64(n); *b.room < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// topNames lists what lies at the top of a tar, as far as it tells a file system
// from an image.
func topNames(file string) (map[string]bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := compression.DecompressStream(f)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	names := map[string]bool{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		if clean := path.Clean(h.Name); path.Dir(clean) == "." {
			names[clean] = true
		}
	}
}
