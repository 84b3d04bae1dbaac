// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonRoot is the user and group of all images. A number, so that a kubelet can see that it is not root.
const nonRoot = "65532:65532"

// newImage makes an image of one file, the binary, which is also the entrypoint; with tmp, it has a /tmp as well.
func newImage(binary []byte, program string, args []string, tmp bool, version, arch string) (v1.Image, error) {
	layer, err := oneFile(binary, program, tmp)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer, types.DockerUncompressedLayer))
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{
		User:       nonRoot,
		WorkingDir: "/",
		Entrypoint: append([]string{"/" + program}, args...),
		Labels:     labels(program, version),
	}
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	return img, nil
}

func labels(program, version string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    program,
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}

// oneFile is a layer with one executable that belongs to root and that no user may change, and perhaps a folder in which
// every user may make files.
func oneFile(content []byte, file string, tmp bool) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if tmp {
		folder := &tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(folder); err != nil {
			return nil, fmt.Errorf("writing the layer: %w", err)
		}
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o555, Size: int64(len(content)), Format: tar.FormatUSTAR}
	if err := w.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("writing the layer: %w", err)
	}
	if _, err := w.Write(content); err != nil {
		return nil, fmt.Errorf("writing the layer: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("writing the layer: %w", err)
	}
	return layer.Bytes(), nil
}
