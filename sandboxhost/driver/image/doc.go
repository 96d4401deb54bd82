// Package image makes directories of container images: from a registry, from a
// tar or a layout on disk. What one image holds is unpacked once, is shared by
// all sandboxes that name it and is never written to again.
//
// What does not belong here: mounts, and what of an image a driver uses.
package image
