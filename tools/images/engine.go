// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// engineBuild makes the project's images with a container engine and the Containerfile, which expects binaries that are
// built already. The archives have the same names and tags as those that are made without one.
func engineBuild(ctx context.Context, o options) error {
	for _, s := range o.specs {
		dir, err := os.MkdirTemp("", "atoll-images-")
		if err != nil {
			return fmt.Errorf("making a build context: %w", err)
		}
		err = engineImage(ctx, o, s, dir)
		_ = os.RemoveAll(dir)
		if err != nil {
			return fmt.Errorf("building image %s with %s: %w", s.refs[0], o.engine, err)
		}
	}
	return nil
}

func engineImage(ctx context.Context, o options, s spec, dir string) error {
	binary := filepath.Join(dir, s.file)
	if err := compile(ctx, o, s.pkg, binary); err != nil {
		return err
	}
	if err := writeSBOM(binary, s.file, o.version, filepath.Join(o.out, s.file+".sbom.json")); err != nil {
		return err
	}
	build := []string{"build", "--file", filepath.Join(o.root, "Containerfile"), "--target", s.file, "--platform", "linux/" + o.arch}
	for key, value := range labels(s.file, o.version) {
		build = append(build, "--label", key+"="+value)
	}
	var refs []string
	for _, ref := range s.refs {
		// In full: podman takes a bare name for its own registry "localhost", kubelets take it for this one.
		full := "docker.io/library/" + ref
		build, refs = append(build, "--tag", full), append(refs, full)
	}
	if err := engine(ctx, o, append(build, dir)...); err != nil {
		return err
	}
	path := filepath.Join(o.out, s.file+".tar")
	// Engines add to an archive that is there, or refuse to.
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("removing the old archive: %w", err)
	}
	if err := engine(ctx, o, append([]string{"save", "--output", path}, refs...)...); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}

func engine(ctx context.Context, o options, args ...string) error {
	cmd := exec.CommandContext(ctx, o.engine, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", o.engine, args[0], err, out)
	}
	return nil
}
