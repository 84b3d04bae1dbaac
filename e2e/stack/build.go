// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	_ "navix.sh/atoll" // a suite depends on the sources that it compiles
	"navix.sh/atoll/e2e/plane"
)

// programs are the project's programs, by name.
var programs = map[string]string{"atoll-hub": "./hub", "atoll-worker": "./worker", "atollctl": "./cli"}

// Build compiles the programs for this machine into dir; with race, under the race detector. It builds them in the user's cache
// directory, where go leaves a program alone that is up to date: suites that run one after the other link each program once.
func Build(ctx context.Context, dir string, race bool, tags ...string) error {
	cache, unlock, err := programCache(race, tags)
	if err != nil {
		return fmt.Errorf("opening the cache of programs: %w", err)
	}
	defer unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of programs: %w", err)
	}
	all := maps.Clone(programs)
	all["atoll-sandboxd"] = "./sandboxd" // older versions have none
	for name, pkg := range all {
		built := filepath.Join(cache, name)
		args := []string{"build", "-trimpath", "-buildvcs=false", "-tags", strings.Join(tags, ","), "-o", built}
		if race {
			args = append(args, "-race")
		}
		if err := goCommand(ctx, append(args, pkg)...); err != nil {
			return fmt.Errorf("building %s: %w", name, err)
		}
		if err := linkOrCopy(built, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("building %s: %w", name, err)
		}
	}
	return nil
}

// programCache returns the folder of programs of one kind, locked until unlock is called.
func programCache(race bool, tags []string) (dir string, unlock func(), err error) {
	if dir, err = os.UserCacheDir(); err != nil {
		return "", nil, fmt.Errorf("choosing a cache directory: %w", err)
	}
	kind := "plain"
	if race {
		kind = "race"
	}
	dir = filepath.Join(dir, "atoll", "programs", strings.Join(append([]string{kind}, tags...), "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("making a cache directory: %w", err)
	}
	lock, err := plane.LockFile(filepath.Join(dir, ".lock"), unix.LOCK_EX)
	if err != nil {
		return "", nil, err
	}
	return dir, func() { _ = lock.Close() }, nil
}

// linkOrCopy makes to the same file as from, or a copy of it where to is in another file system.
func linkOrCopy(from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the program of before: %w", err)
	}
	if os.Link(from, to) == nil {
		return nil
	}
	program, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copying a program: %w", err)
	}
	if err := os.WriteFile(to, program, 0o755); err != nil {
		return fmt.Errorf("copying a program: %w", err)
	}
	return nil
}

// ImageTag is the tag of BuildImages' images of hub and worker.
const ImageTag = "e2e"

// TestImage is an image for sandboxes.
type TestImage struct {
	// Name with registry and tag.
	Name string
	// Args of the image's program, tenant.
	Args []string
}

// BuildImages builds images of hub, worker and the sandboxes, and returns their archives, to be loaded into clusters.
func BuildImages(ctx context.Context, dir string, race bool, sandboxes ...TestImage) ([]string, error) {
	project := []string{"-C", "tools", "run", "./images", "--out", dir, "--version", ImageTag}
	if race {
		project = append(project, "--race")
	}
	if err := goCommand(ctx, project...); err != nil {
		return nil, fmt.Errorf("building the images of hub and worker: %w", err)
	}
	archives := []string{
		filepath.Join(dir, "atoll-hub.tar"), filepath.Join(dir, "atoll-worker.tar"), filepath.Join(dir, "atoll-sandboxd.tar"),
	}
	if len(sandboxes) == 0 {
		return archives, nil
	}
	tenants, err := BuildSandboxes(ctx, dir, sandboxes...)
	return append(archives, tenants), err
}

// BuildSandboxes builds only the sandboxes' images, in one archive.
func BuildSandboxes(ctx context.Context, dir string, sandboxes ...TestImage) (archive string, err error) {
	const tenants = "tenants"
	args := []string{"-C", "tools", "run", "./images", "--out", dir}
	for _, image := range sandboxes {
		args = append(args, "--image", strings.Join(append([]string{tenants, image.Name, "./e2e/tenant"}, image.Args...), " "))
	}
	if err := goCommand(ctx, args...); err != nil {
		return "", fmt.Errorf("building the sandboxes' images: %w", err)
	}
	return filepath.Join(dir, tenants+".tar"), nil
}

func goCommand(ctx context.Context, args ...string) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// moduleRoot is the folder of Atoll's go.mod: the programs and charts under test are those of this checkout.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "navix.sh/atoll").Output()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
