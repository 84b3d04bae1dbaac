// SPDX-License-Identifier: Apache-2.0

// Command mutate changes code, one token at a time, and runs the tests of its package: a mutant that no test fails on is a
// survivor. It runs gremlins (pinned in go.mod) on a copy of the tree, for every package of packages.txt, and compares the
// survivors with accepted.txt, which says why a mutant may live. It fails on a survivor that is not there, and on an entry that
// no mutant matches any more.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// target is a line of packages.txt: a package, the files in it that are mutated, and the tests that must kill the mutants.
type target struct{ pkg, files, tests string }

// mutant is one change, as accepted.txt names it: the file, the kind, which one of that kind in its line, and the line.
type mutant struct{ file, kind, line string }

func (m mutant) String() string { return m.file + ": " + m.kind + ": " + m.line }

type report struct {
	Files []struct {
		Name      string `json:"file_name"`
		Mutations []struct {
			Type, Status string
			Line, Column int
		}
	}
}

func main() {
	only := flag.String("packages", "", "only the packages that this regular expression matches")
	list := flag.Bool("list", false, "only count the mutants")
	workers := flag.Int("workers", 1, "how many mutants are tested at once")
	flag.Parse()
	if err := run(*only, *workers, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(only string, workers int, list bool) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-packages: %w", err)
	}
	targets, err := readTargets("packages.txt")
	if err != nil {
		return err
	}
	accepted, err := readAccepted("accepted.txt")
	if err != nil {
		return err
	}
	tree, err := copyTree()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	bad := 0
	for _, t := range targets {
		if !match.MatchString(t.pkg) {
			continue
		}
		fmt.Fprintf(os.Stderr, "mutate: changing %s (%s)\n", t.pkg, t.files)
		r, err := unleash(tree, t, workers, list)
		if err != nil {
			return fmt.Errorf("%s: %w", t.pkg, err)
		}
		n, err := printMutants(tree, t, r, accepted)
		if err != nil {
			return fmt.Errorf("%s: %w", t.pkg, err)
		}
		bad += n
	}
	if bad > 0 {
		return fmt.Errorf("%d mutants to be killed by a test, or entries of accepted.txt to be set right", bad)
	}
	return nil
}

// printMutants prints what became of a package's mutants, and returns how many survivors and entries are wrong.
func printMutants(tree string, t target, r report, accepted map[mutant]string) (bad int, err error) {
	counts, alive := map[string]int{}, map[mutant]bool{}
	for _, f := range r.Files {
		name := filepath.Join(t.pkg, f.Name)
		lines, err := readLines(filepath.Join(tree, name))
		if err != nil {
			return 0, err
		}
		slices.SortFunc(f.Mutations, func(a, b struct {
			Type, Status string
			Line, Column int
		}) int {
			return a.Column - b.Column
		})
		seen := map[string]int{}
		for _, m := range f.Mutations {
			kind := fmt.Sprint(m.Line, m.Type)
			seen[kind]++
			counts[m.Status]++
			if m.Status != "LIVED" && m.Status != "NOT COVERED" {
				continue
			}
			text := strings.TrimSpace(lines[m.Line-1])
			one := mutant{name, m.Type + " " + strconv.Itoa(seen[kind]), text}
			if _, ok := accepted[one]; ok {
				counts["accepted"]++
				counts[m.Status]--
				alive[one] = true
				continue
			}
			fmt.Printf("%s (line %d, %s)\n", one, m.Line, strings.ToLower(m.Status))
			bad++
		}
	}
	wanted := fileNames(t.files)
	for _, m := range slices.SortedFunc(maps.Keys(accepted), func(a, b mutant) int { return strings.Compare(a.String(), b.String()) }) {
		if filepath.Dir(m.file) == t.pkg && wanted.MatchString(filepath.Base(m.file)) && !alive[m] {
			fmt.Printf("%s (accepted, and does not live)\n", m)
			bad++
		}
	}
	if n := counts["RUNNABLE"]; n > 0 {
		fmt.Printf("%s (%s): %d mutants\n", t.pkg, t.files, n)
		return 0, nil
	}
	fmt.Printf("%s (%s): %d killed, %d timed out, %d survived, %d not covered, %d accepted\n",
		t.pkg, t.files, counts["KILLED"], counts["TIMED OUT"], counts["LIVED"], counts["NOT COVERED"], counts["accepted"])
	return bad, nil
}

// unleash has gremlins mutate one package.
func unleash(tree string, t target, workers int, list bool) (r report, err error) {
	dir := filepath.Join(tree, t.pkg)
	out := filepath.Join(tree, "gremlins.json")
	gremlins, err := exec.Command("go", "tool", "-n", "gremlins").Output()
	if err != nil {
		return r, fmt.Errorf("building gremlins: %w", err)
	}
	if err := wrapGo(filepath.Join(tree, "bin")); err != nil {
		return r, err
	}
	args := append([]string{"unleash", "--output", out, "--workers", strconv.Itoa(workers), "--timeout-coefficient", "6", "--silent"},
		kinds...)
	for _, not := range except(dir, t.files) {
		args = append(args, "--exclude-files", not)
	}
	if list {
		args = append(args, "--dry-run")
	}
	// Tests that cut the power take their time; they are judged by leaving out a sync.
	flags := "-trimpath -vet=off -ldflags=-s -skip=PowerCut -run=" + t.tests
	// Compiled first: gremlins takes the time of its first run for that of a test.
	for _, command := range [][]string{
		{"go", "test", "-count=1", "-cover", "."},
		append([]string{strings.TrimSpace(string(gremlins))}, args...),
	} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS="+flags, "PATH="+filepath.Join(tree, "bin")+":"+os.Getenv("PATH"))
		if said, err := cmd.CombinedOutput(); err != nil {
			return r, fmt.Errorf("%s: %w\n%s", command[0], err, said)
		}
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}

// kinds are the mutants that gremlins makes only when told.
var kinds = []string{
	"--invert-assignments", "--invert-bitwise", "--invert-bwassign", "--invert-logical", "--invert-loopctrl", "--remove-self-assignments",
}

// wrapGo puts a go command before the real one that has a coverage profile say that all is covered. Coverage has no blocks for
// the conditions of case clauses and for constants, so that gremlins would leave them alone. It also takes some seconds more:
// gremlins gives a test run a multiple of that time, and on a busy machine a mutant that hangs must not be one that waits.
func wrapGo(dir string) error {
	real, err := exec.LookPath("go")
	if err != nil {
		return err
	}
	script := "#!/bin/sh\n" + real + ` "$@" || exit $?
while [ $# -gt 1 ]; do
	if [ "$1" = -coverprofile ]; then
		sleep 3
		awk -F: 'NR == 1 || !seen[$1]++ { print (NR == 1 ? $0 : $1 ":1.1,100000.1 1 1") }' "$2" >"$2.all" && mv "$2.all" "$2"
	fi
	shift
done
`
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755)
}

// fileNames returns what matches the names of a target's files.
func fileNames(files string) *regexp.Regexp { return regexp.MustCompile("^(" + files + ")$") }

// except lists the files below dir that are not to be mutated.
func except(dir, files string) (not []string) {
	wanted := fileNames(files)
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		rel, relErr := filepath.Rel(dir, path)
		if err == nil && relErr == nil && !e.IsDir() && strings.HasSuffix(rel, ".go") && !wanted.MatchString(rel) {
			not = append(not, "^"+regexp.QuoteMeta(rel)+"$")
		}
		return nil
	})
	return not
}

// copyTree copies what git would commit. What is built lies beside it, and is large.
func copyTree() (string, error) {
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the repository: %w", err)
	}
	tree, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return "", err
	}
	copying := exec.Command("sh", "-c",
		`git ls-files -co --exclude-standard -z | while IFS= read -r -d "" f; do [ -f "$f" ] && printf '%s\0' "$f"; done | tar -c --null -T - | tar -x -C "$1"`, "sh", tree)
	copying.Args[0], copying.Path = "bash", "/bin/bash"
	copying.Dir = strings.TrimSpace(string(root))
	if said, err := copying.CombinedOutput(); err != nil {
		return "", fmt.Errorf("copying the tree: %w: %s", err, said)
	}
	return tree, nil
}

func readLines(path string) (lines []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	return lines, scanner.Err()
}

func readTargets(path string) (targets []target, err error) {
	lines, err := readLines(path)
	for _, line := range lines {
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: %q has no package, files and tests", path, line)
		}
		targets = append(targets, target{fields[0], fields[1], fields[2]})
	}
	return targets, err
}

// readAccepted reads mutants, each with its reason in indented lines below.
func readAccepted(path string) (map[mutant]string, error) {
	lines, err := readLines(path)
	accepted := map[mutant]string{}
	var last mutant
	for n, line := range lines {
		text := strings.TrimSpace(line)
		switch {
		case text == "" || text[0] == '#':
		case line != text:
			accepted[last] += text
		default:
			parts := strings.SplitN(line, ": ", 3)
			if len(parts) != 3 {
				return nil, fmt.Errorf("%s:%d: want FILE: KIND NUMBER: LINE", path, n+1)
			}
			last = mutant{parts[0], parts[1], parts[2]}
			accepted[last] = ""
		}
	}
	for m, reason := range accepted {
		if reason == "" {
			err = errors.Join(err, fmt.Errorf("%s: no reason for %s", path, m))
		}
	}
	return accepted, err
}
