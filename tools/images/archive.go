// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// tagged is an image and the names under which it is loaded.
type tagged struct {
	img  v1.Image
	refs []name.Tag
}

// archive is what `docker save` writes. Package tarball writes that, too, but takes a map, and so has images and tags in
// an order of chance.
type archive struct{ images []tagged }

func (a *archive) write(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	var manifest tarball.Manifest
	written := map[string]bool{}
	for _, image := range a.images {
		entry, err := writeImage(w, image, written)
		if err != nil {
			return err
		}
		manifest = append(manifest, entry)
	}
	index, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("encoding the manifest: %w", err)
	}
	if err := writeFile(w, "manifest.json", index); err != nil {
		return err
	}
	return w.Close()
}

// writeImage writes what of an image is not there yet: images that differ in their entrypoint share their layer.
func writeImage(w *tar.Writer, image tagged, written map[string]bool) (tarball.Descriptor, error) {
	var entry tarball.Descriptor
	for _, ref := range image.refs {
		entry.RepoTags = append(entry.RepoTags, ref.String())
	}
	once := func(name string, content func() ([]byte, error)) error {
		if written[name] {
			return nil
		}
		written[name] = true
		bytes, err := content()
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		return writeFile(w, name, bytes)
	}
	layers, err := image.img.Layers()
	if err != nil {
		return entry, fmt.Errorf("listing the layers: %w", err)
	}
	for _, layer := range layers {
		digest, err := layer.DiffID()
		if err != nil {
			return entry, fmt.Errorf("hashing a layer: %w", err)
		}
		file := digest.Hex + ".tar"
		entry.Layers = append(entry.Layers, file)
		err = once(file, func() ([]byte, error) {
			content, err := layer.Uncompressed()
			if err != nil {
				return nil, err
			}
			defer content.Close()
			return io.ReadAll(content)
		})
		if err != nil {
			return entry, err
		}
	}
	digest, err := image.img.ConfigName()
	if err != nil {
		return entry, fmt.Errorf("hashing the configuration: %w", err)
	}
	entry.Config = digest.Hex + ".json"
	return entry, once(entry.Config, image.img.RawConfigFile)
}

func writeFile(w *tar.Writer, name string, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o444, Size: int64(len(content)), Format: tar.FormatUSTAR}
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
