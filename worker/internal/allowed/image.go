// SPDX-License-Identifier: Apache-2.0

package allowed

import (
	"slices"
	"strings"

	"github.com/distribution/reference"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
)

const (
	anyDigest = "@sha256:*"
	dockerHub = "docker.io"

	validPattern = "an image such as registry.example/team/app:v1, a repository such as registry.example/team/app, " +
		"or the beginning of one such as registry.example/team/*; @sha256:* after a repository or a * for images by digest"
	validHost = validPattern + "; a registry is named in full and in lower case"
)

// pattern is one line of a list of images. An empty part matches anything.
type pattern struct {
	text         string
	host, path   string
	begins       bool // path is a prefix
	tag, digest  string
	onlyByDigest bool
}

// parsePattern returns a pattern, or a text that says what is valid.
func parsePattern(text string) (p pattern, valid string) {
	p.text = text
	name, byDigest := strings.CutSuffix(text, anyDigest)
	p.onlyByDigest = byDigest
	beginning, begins := strings.CutSuffix(name, "*")
	switch {
	case !begins:
		return p.parseName(name)
	case beginning == "":
		p.begins = true
		return p, ""
	}
	return p.parseBeginning(beginning)
}

func (p pattern) parseName(name string) (pattern, string) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil || p.onlyByDigest && !reference.IsNameOnly(named) {
		return p, validPattern
	}
	p.host, p.path = reference.Domain(named), reference.Path(named)
	if digested, ok := named.(reference.Digested); ok {
		p.digest = digested.Digest().String()
	} else if tagged, ok := named.(reference.Tagged); ok {
		p.tag = tagged.Tag()
	}
	return p, lowerHost(p.host)
}

// parseBeginning parses a prefix. It appends a letter, so that the library accepts it as a complete name.
func (p pattern) parseBeginning(beginning string) (pattern, string) {
	const letter = "x"
	p.begins = true
	if beginning == dockerHub+"/" || beginning == "index."+dockerHub+"/" {
		p.host = dockerHub // not docker.io/library alone
		return p, ""
	}
	if !strings.Contains(beginning, "/") && (strings.ContainsAny(beginning, ".:") || beginning == "localhost") {
		return p, validHost
	}
	named, err := reference.ParseNormalizedNamed(beginning + letter)
	if err != nil || !reference.IsNameOnly(named) {
		return p, validPattern
	}
	p.host, p.path = reference.Domain(named), strings.TrimSuffix(reference.Path(named), letter)
	return p, lowerHost(p.host)
}

func lowerHost(host string) (valid string) {
	if strings.ToLower(host) != host {
		return validHost
	}
	return ""
}

// allows reports whether an image matches. An image with a digest has no tag.
func (p *pattern) allows(image reference.Named) bool {
	host, path, digest, tag := reference.Domain(image), reference.Path(image), "", ""
	if digested, ok := image.(reference.Digested); ok {
		digest = digested.Digest().String()
	} else if tagged, ok := image.(reference.Tagged); ok {
		tag = tagged.Tag()
	}
	switch {
	case p.host != "" && p.host != host:
		return false
	case p.begins && !strings.HasPrefix(path, p.path), !p.begins && p.path != path:
		return false
	case p.onlyByDigest:
		return strings.HasPrefix(digest, "sha256:")
	case p.digest != "":
		return p.digest == digest
	case p.tag != "":
		return p.tag == tag
	}
	return true
}

// Image decides whether a claim may name an image: one of the template's own, or one that the lists allow. The error is FORBIDDEN and says
// what is allowed, or INVALID if the text is no reference.
func (l Lists) Image(asked string, own ...string) *problem.Error {
	image, err := reference.ParseDockerRef(clip.Text(asked, maxPattern))
	if err != nil || len(asked) > maxPattern {
		return problem.InvalidField("image", clip.Text(asked, 80),
			"an image reference such as registry.example/team/app:v1, at most 512 characters")
	}
	for _, name := range own {
		if same, err := reference.ParseDockerRef(name); err == nil && same.String() == image.String() {
			return nil
		}
	}
	for i := range l.images {
		if l.images[i].allows(image) {
			return nil
		}
	}
	allowed := slices.Clone(own)
	for i := range l.images {
		allowed = append(allowed, l.images[i].text)
	}
	return problem.New(problem.Forbidden, "image: %q is not allowed here, want %s; %s",
		clip.Text(asked, 200), list(allowed), l.others(v1alpha1.AllowedImagesAnnotationKey))
}
