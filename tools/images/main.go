// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/pflag"
)

// spec says what one image is made of.
type spec struct {
	file string   // of the archive, without extension
	refs []string // names that the image has once it is loaded
	pkg  string   // main package, relative to the module
	args []string // of the entrypoint, after the binary
	tmp  bool     // with a /tmp
}

// options of a run.
type options struct {
	out, root, arch, version string
	engine                   string
	tags                     []string
	race                     bool
	specs                    []spec
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	var o options
	var images []string
	flags := pflag.NewFlagSet("images", pflag.ContinueOnError)
	flags.StringVar(&o.out, "out", filepath.Join("..", "bin", "images"), "folder of the archives")
	flags.StringVar(&o.root, "root", "..", "folder of the module whose packages are built")
	flags.StringVar(&o.arch, "arch", runtime.GOARCH, "GOARCH of the images")
	flags.StringVar(&o.version, "version", "dev", "version to stamp; also a tag of the project's images")
	flags.StringSliceVar(&o.tags, "tag", nil, "further tags of the project's images")
	flags.BoolVar(&o.race, "race", false, "with the race detector, for tests; needs a C compiler and a static C library")
	flags.StringVar(&o.engine, "engine", "", "docker, podman or the like: build the project's images with it, by the Containerfile")
	flags.StringArrayVar(&images, "image", nil, "'FILE REF PACKAGE [ARG...]' to build instead of the project's images; repeatable")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, image := range images {
		fields := strings.Fields(image)
		if len(fields) < 3 {
			return fmt.Errorf("--image %q is not valid, want 'FILE REF PACKAGE [ARG...]'", image)
		}
		o.specs = append(o.specs, spec{file: fields[0], refs: fields[1:2], pkg: fields[2], args: fields[3:], tmp: true})
	}
	if o.engine != "" && len(images) > 0 {
		return errors.New("--engine builds the project's images alone, not --image")
	}
	if len(images) == 0 {
		o.specs = projectImages(append([]string{o.version}, o.tags...))
	}
	return run(ctx, o)
}

// projectImages are what a release consists of, and the quick start's sandbox.
func projectImages(tags []string) []spec {
	specs := []spec{
		{file: "atoll-hub", pkg: "./hub"}, {file: "atoll-worker", pkg: "./worker"}, {file: "atoll-sandboxd", pkg: "./sandboxd"},
		{file: "atoll-hello", pkg: "./examples/hello"},
	}
	for i := range specs {
		for _, tag := range tags {
			specs[i].refs = append(specs[i].refs, specs[i].file+":"+tag)
		}
	}
	return specs
}

func run(ctx context.Context, o options) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("creating --out: %w", err)
	}
	if o.engine != "" {
		return engineBuild(ctx, o)
	}
	work, err := os.MkdirTemp("", "atoll-images-")
	if err != nil {
		return fmt.Errorf("making a folder for binaries: %w", err)
	}
	defer os.RemoveAll(work)

	archives := map[string]*archive{}
	binaries := map[string]string{} // package → path
	for _, s := range o.specs {
		if binaries[s.pkg] == "" {
			path := filepath.Join(work, fmt.Sprint(len(binaries)), programName(s))
			if err := compile(ctx, o, s.pkg, path); err != nil {
				return err
			}
			binaries[s.pkg] = path
		}
		if err := add(archives, o, s, binaries[s.pkg]); err != nil {
			return fmt.Errorf("building image %s: %w", s.refs[0], err)
		}
	}
	for file, a := range archives {
		path := filepath.Join(o.out, file+".tar")
		if err := a.write(path); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		fmt.Println(path)
	}
	return nil
}

// add makes the image of a binary, with its SBOM, and puts it into its archive.
func add(archives map[string]*archive, o options, s spec, binary string) error {
	var refs []name.Tag
	for _, ref := range s.refs {
		tag, err := name.NewTag(ref)
		if err != nil {
			return fmt.Errorf("naming the image: %w", err)
		}
		refs = append(refs, tag)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading the binary: %w", err)
	}
	img, err := newImage(content, filepath.Base(binary), s.args, s.tmp, o.version, o.arch)
	if err != nil {
		return err
	}
	if archives[s.file] == nil {
		archives[s.file] = &archive{}
		if err := writeSBOM(binary, filepath.Base(binary), o.version, filepath.Join(o.out, s.file+".sbom.json")); err != nil {
			return err
		}
	}
	archives[s.file].images = append(archives[s.file].images, tagged{img: img, refs: refs})
	return nil
}
