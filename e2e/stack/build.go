// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	_ "navix.sh/atoll" // a suite depends on the sources that it compiles
)

// programs are the project's programs, by name.
var programs = map[string]string{"atoll-hub": "./hub", "atoll-worker": "./worker", "atollctl": "./cli"}

// Build compiles the programs for this machine into dir; with race, under the race detector.
func Build(ctx context.Context, dir string, race bool, tags ...string) error {
	all := maps.Clone(programs)
	all["atoll-sandboxd"] = "./sandboxd" // older versions have none
	for name, pkg := range all {
		args := []string{"build", "-tags", strings.Join(tags, ","), "-o", filepath.Join(dir, name)}
		if race {
			args = append(args, "-race")
		}
		if err := goCommand(ctx, append(args, pkg)...); err != nil {
			return fmt.Errorf("building %s: %w", name, err)
		}
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
