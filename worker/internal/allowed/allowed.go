// SPDX-License-Identifier: Apache-2.0

package allowed

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
)

// Bounds of a list.
const (
	maxImages     = 64
	maxPattern    = 512
	maxContainers = 16
	maxName       = 63
)

// Texts are the two lists of an object as written.
type Texts struct{ images, containers string }

// TextsOf returns the lists among annotations.
func TextsOf(annotations map[string]string) Texts {
	return Texts{annotations[v1alpha1.AllowedImagesAnnotationKey], annotations[v1alpha1.AllowedContainersAnnotationKey]}
}

// Lists are what an object allows. The zero value allows nothing.
type Lists struct {
	images     []pattern
	containers []string
	fault      string // the fault of a list, which therefore allows nothing
}

// Empty reports whether there are no lists.
func (l Lists) Empty() bool { return len(l.images) == 0 && len(l.containers) == 0 && l.fault == "" }

// And returns the union: everything that either allows.
func (l Lists) And(other Lists) Lists {
	if l.Empty() {
		return other
	}
	return Lists{
		images: slices.Concat(l.images, other.images), containers: slices.Concat(l.containers, other.containers),
		fault: cmp.Or(l.fault, other.fault),
	}
}

// Read parses the lists, and returns their faults. A list with a fault allows nothing.
func (t Texts) Read() (Lists, []problem.Field) {
	var l Lists
	images := lines{field: v1alpha1.AllowedImagesAnnotationKey, most: maxImages, longest: maxPattern}
	images.read(t.images, func(line string) (valid string) {
		p, valid := parsePattern(line)
		l.images = append(l.images, p)
		return valid
	})
	containers := lines{field: v1alpha1.AllowedContainersAnnotationKey, most: maxContainers, longest: maxName}
	containers.read(t.containers, func(line string) (valid string) {
		if len(validation.IsDNS1123Label(line)) > 0 {
			return "the name of a container: a DNS label such as proxy"
		}
		l.containers = append(l.containers, line)
		return ""
	})
	if len(images.faults) > 0 {
		l.images = nil
	}
	if len(containers.faults) > 0 {
		l.containers = nil
	}
	faults := slices.Concat(images.faults, containers.faults)
	if len(faults) > 0 {
		l.fault = sentence(&faults[0])
	}
	return l, faults
}

// Faults returns the faults of the lists among annotations, each as a sentence that names the field, the value and what is valid.
func Faults(annotations map[string]string) []error {
	_, fields := TextsOf(annotations).Read()
	faults := make([]error, len(fields))
	for i, f := range fields {
		faults[i] = errors.New(sentence(&f))
	}
	return faults
}

func sentence(f *problem.Field) string {
	return fmt.Sprintf("%s: %q is not valid, want %s", f.Field, f.Value, f.Valid)
}

// others returns how to allow more.
func (l Lists) others(annotation string) string {
	if l.fault != "" {
		return "a list allows nothing: " + l.fault
	}
	return "the annotation " + annotation + " of the Env or of its template allows others"
}

// lines parses a text with one entry per line.
type lines struct {
	field         string
	most, longest int
	faults        []problem.Field
}

func (l *lines) read(text string, add func(line string) (valid string)) {
	if len(text) > l.most*(l.longest+1) {
		l.fault(0, fmt.Sprintf("%d bytes", len(text)), fmt.Sprintf("at most %d lines of %d characters", l.most, l.longest))
		return
	}
	entries := 0
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if entries++; entries > l.most {
			l.fault(number, clip.Text(line, 80), fmt.Sprintf("at most %d lines", l.most))
			return
		}
		if len(line) > l.longest {
			l.fault(number, clip.Text(line, 80), fmt.Sprintf("at most %d characters", l.longest))
			return
		}
		if valid := add(line); valid != "" {
			l.fault(number, clip.Text(line, 80), valid)
			return
		}
	}
}

func (l *lines) fault(line int, value, valid string) {
	field := "metadata.annotations[" + l.field + "]"
	if line > 0 {
		field += fmt.Sprintf(" line %d", line)
	}
	l.faults = append(l.faults, problem.Field{Field: field, Value: value, Valid: valid})
}
