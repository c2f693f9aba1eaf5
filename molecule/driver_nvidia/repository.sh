# shellcheck shell=bash
# Stands in for NVIDIA's repository: signed, with its names, versions and dependencies. The packages are empty but for a
# kernel module of a few lines, which DKMS really builds, and for libraries that are only names.
set -euo pipefail
repo=/srv/repo
mkdir -p $repo/pool /srv/gnupg
chmod 700 /srv/gnupg
export GNUPGHOME=/srv/gnupg

package() { # name version depends; what lies in $tree goes in
    local name=$1 version=$2
    mkdir -p "$tree/DEBIAN"
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: test <t@example.invalid>\n' "$name" "$version"
        [[ -z ${3:-} ]] || printf 'Depends: %s\n' "$3"
        printf 'Description: stand-in\n'
    } >"$tree/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone --build "$tree" $repo/pool >/dev/null
    rm -rf "$tree"
}

library() { # package version file
    mkdir -p "$tree/usr/lib/x86_64-linux-gnu"
    echo "$3 $2" >"$tree/usr/lib/x86_64-linux-gnu/$3.so.${2%-*}"
    ln -s "$3.so.${2%-*}" "$tree/usr/lib/x86_64-linux-gnu/$3.so.1"
    package "$1" "$2"
}

module() { # version
    local version=${1%-*} source=$tree/usr/src/nvidia-${1%-*}
    mkdir -p "$source" "$tree/DEBIAN"
    cat >"$source/nvidia.c" <<C
#include <linux/module.h>
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION("$version");
C
    # As on Debian 13: a kernel whose interface this release does not know.
    [[ $version != 590.* ]] || echo 'int test(void) { return pci_resize_resource(); }' >>"$source/nvidia.c"
    echo 'obj-m := nvidia.o' >"$source/Makefile"
    cat >"$source/dkms.conf" <<C
PACKAGE_NAME="nvidia"
PACKAGE_VERSION="$version"
MAKE[0]="make -C \$kernel_source_dir M=\$dkms_tree/\$module/\$module_version/build modules"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="yes"
C
    # shellcheck disable=SC2016 # the script's own $1
    printf '#!/bin/sh\nset -e\n[ "$1" != configure ] || /usr/lib/dkms/common.postinst nvidia %s\n' "$version" >"$tree/DEBIAN/postinst"
    printf '#!/bin/sh\ndkms remove -m nvidia -v %s --all\nexit 0\n' "$version" >"$tree/DEBIAN/prerm"
    chmod 755 "$tree"/DEBIAN/{postinst,prerm}
    package nvidia-kernel-open-dkms "$1" "dkms"
}

tree=/tmp/package
for version in 570.124.06-1 570.133.20-1 580.95.05-1 580.105.08-1 590.48.01-1; do
    library libcuda1 $version libcuda
    library libnvidia-ml1 $version libnvidia-ml
    module $version
    package nvidia-driver-cuda $version "libcuda1 (= $version), libnvidia-ml1 (= $version)"
    package nvidia-persistenced $version
    manager=nvidia-fabricmanager
    [[ $version == 590.* ]] || manager=nvidia-fabricmanager-${version%%.*}
    mkdir -p $tree/lib/systemd/system
    printf '[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n' \
        >$tree/lib/systemd/system/nvidia-fabricmanager.service
    package "$manager" $version
    # The branch's meta package takes whatever version is the candidate, as NVIDIA's does of its libraries.
    package nvidia-open-${version%%.*} $version "nvidia-kernel-open-dkms, nvidia-driver-cuda"
    package nvidia-open $version "nvidia-kernel-open-dkms, nvidia-driver-cuda"
done
package nvidia-driver-pinning-580 580-1
package nvidia-driver-pinning-590 590-1
package cuda-toolkit-12-6 12.6.3-1
package cuda-toolkit-12-8 12.8.1-1
for version in "$@"; do # name=version
    package "${version%%=*}" "${version#*=}"
done

[[ -e $repo/3bf863cc.pub ]] || {
    gpg --batch --quiet --cert-digest-algo "$DIGEST" --passphrase '' --quick-gen-key 'Stand-in <repo@example.invalid>' rsa2048 sign 1y
    gpg --armor --export >$repo/3bf863cc.pub
    gpg --show-keys --with-colons $repo/3bf863cc.pub | awk -F: '$1 == "fpr" {print $10; exit}' >/root/fingerprint
}
cd $repo
apt-ftparchive packages pool >Packages
apt-ftparchive -o APT::FTPArchive::Release::Origin=NVIDIA -o APT::FTPArchive::Release::Suite=stable release . >/tmp/Release
mv /tmp/Release Release
gpg --batch --yes --clearsign -o InRelease Release
gpgconf --kill gpg-agent
