// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Version is one build of Atoll: its sources and its programs.
type Version struct {
	// Name is stamped into the programs, and is the tag of their images.
	Name string
	// Source is the folder of the sources, charts included.
	Source string
	// BinDir holds the programs for this machine.
	BinDir string
}

// Checkout is the version of this checkout, with its changes.
func Checkout(ctx context.Context, name string) (Version, error) {
	root, err := moduleRoot(ctx)
	return Version{Name: name, Source: root}, err
}

// ErrNoHistory is a checkout without an earlier revision: an unpacked archive, a shallow clone.
var ErrNoHistory = errors.New("no earlier revision is known")

// Previous returns the revision before this checkout's: the newest tag other than the checkout's own; without tags, the latest
// commit before it that changed the input of programs and charts.
func Previous(ctx context.Context) (revision string, err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	ask := func(args ...string) string {
		// git's error output does not matter: there is a history, or there is none.
		out, _ := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out))
	}
	if tag := ask("describe", "--tags", "--abbrev=0", "HEAD~1"); tag != "" {
		return tag, nil
	}
	if commit := ask("log", "-1", "--format=%H", "HEAD~1", "--", "go.mod", "api", "charts", "hub", "pkg", "worker"); commit != "" {
		return commit, nil
	}
	return "", fmt.Errorf("looking for what was before %s: %w", root, ErrNoHistory)
}

// Revision is the version of a git revision of this checkout. Its sources are written to dir, which must not exist yet.
func Revision(ctx context.Context, name, revision, dir string) (Version, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return Version{}, err
	}
	cmd := exec.CommandContext(ctx, "git", "-C", root, "archive", "--format=tar", revision)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	archive, err := cmd.StdoutPipe()
	if err != nil {
		return Version{}, fmt.Errorf("preparing git archive: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return Version{}, fmt.Errorf("starting git archive: %w", err)
	}
	err = unpack(archive, dir)
	// Wait closes the pipe, so that git ends even if unpacking stopped early.
	if waitErr := cmd.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("git archive %s: %w: %s", revision, waitErr, strings.TrimSpace(complaint.String())))
	}
	if err != nil {
		return Version{}, fmt.Errorf("taking the sources of revision %s: %w", revision, err)
	}
	return Version{Name: name, Source: dir}, nil
}

// unpack writes the folders and files of an archive below dir.
func unpack(archive io.Reader, dir string) error {
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name) {
			continue // folders are created with their files; links are never compiled
		}
		if err := unpackFile(reader, filepath.Join(dir, header.Name), header.FileInfo().Mode()); err != nil {
			return err
		}
	}
}

func unpackFile(from io.Reader, path string, mode os.FileMode) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(file, from)
	return err
}

// Build compiles the version's programs for this machine into dir, as for a release. Code that two versions share is compiled
// once.
func (v *Version) Build(ctx context.Context, dir string) error {
	v.BinDir = dir
	for name, pkg := range programs {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
			"-ldflags", "-s -w -X navix.sh/atoll/pkg/version.Version="+v.Name, "-o", filepath.Join(dir, name), pkg)
		cmd.Dir, cmd.Env = v.Source, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s of %s: %w\n%s", name, v.Name, err, out)
		}
	}
	return nil
}

// Images builds the version's images of hub and worker, and returns their archives, to be loaded into clusters.
func (v *Version) Images(ctx context.Context, dir string) ([]string, error) {
	// The tool is this checkout's; because an earlier version may lack it.
	if err := goCommand(ctx, "-C", "tools", "run", "./images", "--root", v.Source, "--out", dir, "--version", v.Name,
		"--image", "atoll-hub atoll-hub:"+v.Name+" ./hub", "--image", "atoll-worker atoll-worker:"+v.Name+" ./worker"); err != nil {
		return nil, fmt.Errorf("building the images of %s: %w", v.Name, err)
	}
	return []string{filepath.Join(dir, "atoll-hub.tar"), filepath.Join(dir, "atoll-worker.tar")}, nil
}
