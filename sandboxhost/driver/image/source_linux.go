package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// source is where a root comes from. One of dir, image and file is set, but in
// one that is only looked up.
type source struct {
	// key names the root in the store: it is the digest of what is unpacked.
	key string
	// dir is a root already.
	dir   string
	image func(context.Context) (v1.Image, error)
	// file is a tar.
	file string
}

// platform is what an image has to be for.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// find says what a name stands for.
func (s *Store) find(ctx context.Context, named string) (source, error) {
	if !filepath.IsAbs(named) {
		return s.findRemote(ctx, named)
	}
	info, err := os.Stat(named)
	if err != nil {
		return source{}, err
	}
	if !info.IsDir() {
		return s.findFile(named)
	}
	if _, err := os.Stat(filepath.Join(named, "oci-layout")); err == nil {
		return findLayout(named)
	}
	return source{dir: named}, nil
}

// findRemote asks the registry what a tag stands for, unless it is known.
func (s *Store) findRemote(ctx context.Context, named string) (source, error) {
	ref, err := name.ParseReference(named)
	if err != nil {
		return source{}, err
	}
	digest, isDigest := ref.(name.Digest)
	if !isDigest {
		known, ok := s.stoodFor(named)
		if !ok {
			d, err := remote.Get(ref, registryOptions(ctx)...)
			if err != nil {
				return source{}, err
			}
			known = d.Digest.String()
			s.remember(named, known)
		}
		digest = ref.Context().Digest(known)
	}
	return source{
		key:   keyOf(digest.DigestStr()),
		image: func(ctx context.Context) (v1.Image, error) { return remote.Image(digest, registryOptions(ctx)...) },
	}, nil
}

// registryOptions are how a registry is spoken to: as the user of this process
// has logged in (docker login, podman login).
func registryOptions(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithPlatform(platform())}
}

// keyOf is the name of a root by the digest of its image.
func keyOf(digest string) string {
	// An index of several platforms has one digest.
	return strings.ReplaceAll(digest, ":", "-") + "-" + runtime.GOARCH
}

// findLayout takes the one image of an OCI image layout that is for here.
func findLayout(dir string) (source, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return source{}, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return source{}, err
	}
	var found []v1.Descriptor
	for _, d := range manifest.Manifests {
		if d.MediaType.IsImage() && (d.Platform == nil || d.Platform.Satisfies(platform())) {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return source{}, fmt.Errorf("the layout holds %d images for linux/%s, not one", len(found), runtime.GOARCH)
	}
	return source{
		key:   keyOf(found[0].Digest.String()),
		image: func(context.Context) (v1.Image, error) { return index.Image(found[0].Digest) },
	}, nil
}

// findFile names a tar by what it holds, which is read once for each state of
// the file.
func (s *Store) findFile(path string) (source, error) {
	f, err := os.Open(path)
	if err != nil {
		return source{}, err
	}
	defer f.Close()
	state, err := stateOf(f)
	if err != nil {
		return source{}, err
	}
	key, ok := s.stoodFor(state)
	if !ok {
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			return source{}, err
		}
		key = "tar-" + hex.EncodeToString(sum.Sum(nil))
		s.remember(state, key)
	}
	return source{key: key, file: path}, nil
}

// ofTar opens the image that a tar holds, nil where it is a file system itself.
func ofTar(path string) (v1.Image, error) {
	names, err := topNames(path)
	if err != nil {
		return nil, err
	}
	switch {
	case names["manifest.json"]:
		return tarball.ImageFromPath(path, nil)
	case names["oci-layout"]:
		return nil, errors.New("an OCI archive: unpack it into a directory and name that")
	}
	return nil, nil
}
