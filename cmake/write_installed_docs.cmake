# Run as cmake -DFROM=tree -DHEADERS=folder -DINCLUDE=path -DTO=folder
#            -P cmake/write_installed_docs.cmake
#
# Copies README.md, CHANGELOG.md, SECURITY.md, LICENSE and docs/ from FROM to TO, as they are
# installed. Relative links of the pages to files that are not copied are rewritten. Links to public
# headers, which are in HEADERS, lead to the installed headers. Other links become plain text.
# INCLUDE is the path of the installed headers, relative to the folder in which TO is installed.
cmake_minimum_required(VERSION 3.25)

set(copied README.md CHANGELOG.md SECURITY.md LICENSE docs)
string(ASCII 1 mark)  # replaces "](", because lists with unpaired brackets are not split

# rewrite(page): rewrites the links of a page, whose path is relative to FROM and TO.
function(rewrite page)
    file(READ ${TO}/${page} text)
    string(REPLACE "](" "${mark}(" marked "${text}")
    string(REGEX MATCHALL "${mark}\\([A-Za-z0-9_./#-]+\\)" links "${marked}")
    list(REMOVE_DUPLICATES links)
    cmake_path(GET page PARENT_PATH folder)
    set(up "")
    if(folder)
        string(REGEX REPLACE "[^/]+" ".." up ${folder})
        string(APPEND up "/")
    endif()
    foreach(link IN LISTS links)
        string(REGEX REPLACE "^.\\((.*)\\)$" "\\1" target "${link}")
        string(REGEX REPLACE "#.*$" "" path "${target}")
        cmake_path(SET path NORMALIZE "${folder}/./${path}")
        string(REGEX REPLACE "^/+" "" path "${path}")
        # Code such as [](value) is not a link. Links to other sections have no path.
        if(target MATCHES "^#" OR NOT EXISTS ${FROM}/${path} OR EXISTS ${TO}/${path})
            continue()
        endif()
        if(EXISTS ${HEADERS}/${path} AND NOT IS_DIRECTORY ${HEADERS}/${path})
            string(REPLACE "](${target})" "](${up}${INCLUDE}/${path})" text "${text}")
            continue()
        endif()
        string(REPLACE "." "\\." pattern "${target}")
        string(REGEX REPLACE "!?\\[([^][]*)\\]\\(${pattern}\\)" "\\1" text "${text}")
        string(FIND "${text}" "](${target})" left)
        if(NOT left EQUAL -1)
            message(FATAL_ERROR "${page}: the text of a link to ${target} contains brackets")
        endif()
    endforeach()
    file(WRITE ${TO}/${page} "${text}")
endfunction()

file(REMOVE_RECURSE ${TO})
foreach(source IN LISTS copied)
    file(COPY ${FROM}/${source} DESTINATION ${TO})
endforeach()
file(GLOB_RECURSE pages RELATIVE ${TO} ${TO}/*.md)
foreach(page IN LISTS pages)
    rewrite(${page})
endforeach()
