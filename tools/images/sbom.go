// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM lists the modules that a binary was linked from, with the versions and sums that the linker wrote into it:
// what is in the image, and not what go.mod would allow. It bears no time and no serial number, so that it can be
// reproduced like the image.
func writeSBOM(binary, program, version, to string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading what %s was built from: %w", program, err)
	}
	main := goModule(info.Main.Path, version)
	main.Type, main.Name = cyclonedx.ComponentTypeApplication, program
	toolchain := goModule("std", strings.TrimPrefix(info.GoVersion, "go"))
	toolchain.Description = "the Go standard library"
	components := []cyclonedx.Component{toolchain}
	refs := []string{toolchain.BOMRef}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		component := goModule(module.Path, module.Version)
		if module.Sum != "" {
			component.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: module.Sum}}
		}
		components = append(components, component)
		refs = append(refs, component.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}

	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom,
		cyclonedx.SpecVersion1_6); err != nil {
		return fmt.Errorf("encoding the SBOM of %s: %w", program, err)
	}
	if err := os.WriteFile(to, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the SBOM of %s: %w", program, err)
	}
	return nil
}

func goModule(path, version string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, Name: path, Version: version, PackageURL: purl}
}
