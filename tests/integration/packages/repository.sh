# shellcheck shell=bash
# Stands in for NVIDIA's repository for Enterprise Linux: signed packages of its names, versions and dependencies, with
# module streams on EL 9 and without on EL 10. They are empty but for a kernel module of a few lines, which DKMS really
# builds against headers that lie where kernel-devel puts them, and for libraries that are only names.
set -euo pipefail
el=$1
shift
key=D42D0685.pub
[[ $el == 9 ]] || key=CDF6BA43.pub
export HOME=/root GNUPGHOME=/srv/gnupg
top=/tmp/rpmbuild repo=/srv/repo base=/srv/base
mkdir -p $repo $base $GNUPGHOME $top/SPECS
chmod 700 $GNUPGHOME
modules=$top/modules.yaml
: >$modules
# The kernel whose headers this machine has, under the name that a kernel of Enterprise Linux would have.
kernel=5.14.0-570.12.1.el9_6

spec() { # directory name version requires files [label]
    local name=$2 version=${3%-*} release=${3##*-} epoch=''
    [[ $version != *:* ]] || epoch=${version%%:*} version=${version#*:}
    {
        printf 'Name: %s\nVersion: %s\nRelease: %s\nSummary: stand-in\nLicense: none\n' "$name" "$version" "$release"
        [[ -z $epoch ]] || printf 'Epoch: %s\n' "$epoch"
        [[ -z ${6:-} ]] || printf 'ModularityLabel: %s\n' "$6"
        [[ -z $4 ]] || printf 'Requires: %s\n' "$4"
        [[ $name != bash ]] || printf 'Provides: /bin/sh\n'
        [[ $name != kernel-* ]] || printf 'Provides: installonlypkg(kernel)\n'
        printf '%%global debug_package %%{nil}\n%%global __os_install_post %%{nil}\nAutoReqProv: no\n'
        printf '%%description\nstand-in\n'
        if [[ -d $tree ]]; then
            printf '%%%%install\nmkdir -p %%{buildroot}\ncp -a %s/. %%{buildroot}\n' "$tree.$name-$version"
            mv "$tree" "$tree.$name-$version"
        fi
        [[ ! -e $top/post ]] || cat $top/post
        printf '%%files\n%b' "$5"
    } >"$top/SPECS/$name-$version-$release.spec"
    rm -f $top/post
    echo "$1" >"$top/SPECS/$name-$version-$release.where"
}

tree=$top/tree
module() { # name version label
    local name=$1 version=${2#*:} label=$3
    version=${version%-*}
    mkdir -p "$tree/usr/src/nvidia-$version"
    cat >"$tree/usr/src/nvidia-$version/nvidia.c" <<C
#include <linux/module.h>
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION("$version");
C
    [[ $version != 590.* ]] || echo 'int test(void) { return pci_resize_resource(); }' >>"$tree/usr/src/nvidia-$version/nvidia.c"
    echo 'obj-m := nvidia.o' >"$tree/usr/src/nvidia-$version/Makefile"
    cat >"$tree/usr/src/nvidia-$version/dkms.conf" <<C
PACKAGE_NAME="nvidia"
PACKAGE_VERSION="$version"
MAKE[0]="make -C \$kernel_source_dir M=\$dkms_tree/\$module/\$module_version/build modules"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/extra"
AUTOINSTALL="yes"
C
    # As NVIDIA's: a build that fails does not fail the package.
    cat >$top/post <<C
%post
dkms add -m nvidia -v $version -q || :
dkms build -m nvidia -v $version -k $kernel.x86_64 -q || :
dkms install -m nvidia -v $version -k $kernel.x86_64 -q --force || :
%preun
dkms remove -m nvidia -v $version -q --all || :
C
    [[ $el == 9 ]] || rm $top/post
    spec $repo "$name" "$2" dkms "/usr/src/nvidia-$version\n" "$label"
}

library() { # name version file label
    local version=${2#*:}
    mkdir -p "$tree/usr/lib64"
    echo "$3 $2" >"$tree/usr/lib64/$3.so.${version%-*}"
    ln -s "$3.so.${version%-*}" "$tree/usr/lib64/$3.so.1"
    spec $repo "$1" "$2" "" "/usr/lib64/$3.so*\n" "$4"
}

driver() { # version stream
    local version=3:$1-1.el$el label='' kmod=kmod-nvidia-open-dkms artifacts=()
    [[ $el != 9 ]] || label=nvidia-driver:$2:$((++count)):9
    library nvidia-driver-cuda-libs "$version" libcuda "$label"
    library nvidia-driver-libs "$version" libnvidia-ml "$label"
    # The branch's packages take whatever version is the newest of some others, as NVIDIA's do.
    spec $repo nvidia-persistenced "$version" "" "" "$label"
    spec $repo nvidia-driver-cuda "$version" "nvidia-driver-cuda-libs = $version, nvidia-persistenced" "" "$label"
    spec $repo nvidia-driver "$version" "nvidia-driver-libs = $version, $kmod" "" "$label"
    module $kmod "$version" "$label"
    artifacts=(nvidia-driver-cuda-libs nvidia-driver-libs nvidia-persistenced nvidia-driver-cuda nvidia-driver "$kmod")
    [[ -z $label ]] || {
        printf -- '---\ndocument: modulemd\nversion: 2\ndata:\n  {name: nvidia-driver, stream: "%s", version: %s, context: "9", arch: x86_64, summary: s, description: d,\n   license: {module: [MIT]}, profiles: {default: {rpms: [nvidia-driver]}},\n   artifacts: {rpms: [' "$2" $count
        printf '"%s-3:%s-1.el9.x86_64", ' "${artifacts[0]}" "$1"
        for name in "${artifacts[@]:1}"; do printf '"%s-3:%s-1.el9.x86_64", ' "$name" "$1"; done
        printf ']}}\n...\n'
    } >>$modules
}

metas() { # version
    mkdir -p $tree/usr/lib/systemd/system
    printf '[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n' \
        >$tree/usr/lib/systemd/system/nvidia-fabricmanager.service
    spec $repo nvidia-fabricmanager "$1-1" "" "/usr/lib/systemd/system/nvidia-fabricmanager.service\n"
    spec $repo nvidia-open "3:$1-1.el$el" "nvidia-driver = 3:$1-1.el$el, nvidia-driver-cuda = 3:$1-1.el$el" ""
}

count=0
if [[ $el == 9 ]]; then
    driver 575.57.08 575-open
    driver 580.95.05 580-open
    driver 580.105.08 580-open
    driver 590.48.01 590-open
    # Enterprise Linux's own: a kernel, its headers under its name, and the package that brings each next one's.
    mkdir -p $tree/boot $tree/lib/modules/$kernel.x86_64
    touch $tree/boot/vmlinuz-$kernel.x86_64
    ln -s /usr/src/kernels/$kernel.x86_64 $tree/lib/modules/$kernel.x86_64/build
    spec $base kernel-core $kernel "" "/boot/*\n/lib/modules/$kernel.x86_64\n"
    source=$(echo /usr/src/linux-headers-*-amd64)
    mkdir -p $tree/usr/src/kernels
    cp -a "$source" $tree/usr/src/kernels/$kernel.x86_64
    find $tree/usr/src/kernels/$kernel.x86_64 -maxdepth 1 -type l -printf '%f\n' | while read -r link; do
        ln -sfn "$(readlink -f "$source/$link")" "$tree/usr/src/kernels/$kernel.x86_64/$link"
    done
    sed -i "s/\"[^\"]*\"/\"$kernel.x86_64\"/" $tree/usr/src/kernels/$kernel.x86_64/include/generated/utsrelease.h
    echo $kernel.x86_64 >$tree/usr/src/kernels/$kernel.x86_64/include/config/kernel.release
    spec $base kernel-devel $kernel "" "/usr/src/kernels/$kernel.x86_64\n"
    spec $base kernel-devel-matched $kernel "kernel-core = $kernel, kernel-devel = $kernel" ""
else
    driver 580.95.05 ""
    driver 580.105.08 ""
    driver 590.48.01 ""
fi
for version in 575.57.08 580.95.05 580.105.08 590.48.01; do
    [[ $el == 10 && $version == 575.* ]] || metas $version
done
spec $base dkms "3.2.1-1.el$el" "" ""
spec $base bash "5.1.8-9.el$el" "" "" # what runs the scripts of packages
for version in "$@"; do # name=version
    spec $repo "${version%%=*}" "${version#*=}" "" ""
done

# shellcheck disable=SC2016 # the inner shell's own $$ and $0
find $top/SPECS -name '*.spec' -print0 | xargs -0 -P 2 -I{} sh -c 'rpmbuild -bb --quiet --target x86_64 \
    --define "_topdir '$top'" --define "_build_id_links none" --define "_builddir '$top'/b.$$" \
    --define "_buildrootdir '$top'/r.$$" --define "_binary_payload w0.gzdio" --define "_rpmdir $(cat "${0%.spec}.where")" "$0" \
    >"${0%.spec}.log" 2>&1 || { cat "${0%.spec}.log"; exit 255; }' {}
[[ -e $repo/$key ]] || {
    gpg --batch --quiet --passphrase '' --quick-gen-key 'Stand-in <rpm@example.invalid>' rsa2048 sign 1y
    gpg --armor --export >$repo/$key
    gpg --show-keys --with-colons $repo/$key | awk -F: '$1 == "fpr" {print $10; exit}' >/root/fingerprint
}
find $repo -name '*.rpm' -print0 | xargs -0 rpmsign --define '_gpg_name rpm@example.invalid' --define '__gpg /usr/bin/gpg' --addsign >/dev/null
createrepo_c -q $base
createrepo_c -q $repo
[[ ! -s $modules ]] || modifyrepo_c --mdtype=modules $modules $repo/repodata >/dev/null
gpg --batch --yes --armor --detach-sign $repo/repodata/repomd.xml
gpgconf --kill gpg-agent
rm -rf $top
cat >/etc/yum.repos.d/base.repo <<R
[base]
name=Enterprise Linux
baseurl=file://$base
gpgcheck=0
R
